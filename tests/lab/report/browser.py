"""Opens a page in headless Chromium, at the width of a desk and of a phone at once, and asks it what it looks like."""

import html
import json
import re
import shutil
import subprocess

import pytest

WIDTHS = (1280, 375)
SCHEMES = {"dark": 0, "light": 1}

# Runs before anything else on the page: whatever goes wrong, or is loaded from elsewhere, is written down.
_WATCH = """
<script>
window.seen = [];
addEventListener("error", (event) => seen.push(`error: ${event.message}`), true);
addEventListener("unhandledrejection", (event) => seen.push(`rejected: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) => seen.push(`blocked: ${event.blockedURI}`));
for (const level of ["error", "warn"]) console[level] = (...words) => seen.push(`${level}: ${words.join(" ")}`);
</script>
"""

# Runs after all of it: once every picture is drawn, tells the page around what there is.
_TELL = """
<script>
(function tell() {
  const page = document.documentElement;
  if (!page.dataset.drawn && !seen.length) return setTimeout(tell, 20);
  const overflow = () => page.scrollWidth - page.clientWidth;
  const folded = overflow();
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  parent.postMessage(JSON.stringify({
    seen,
    drawn: page.dataset.drawn || "nothing 0",
    width: innerWidth,
    overflow: [folded, overflow()],
    hacked: window.hacked === undefined ? "no" : "yes",
    plots: Array.from(document.querySelectorAll(".plot"), (plot) => ({
      id: plot.id,
      marks: plot.querySelectorAll(".trace, .point, .shapelayer path").length,
      width: plot.querySelector(".main-svg") ? plot.querySelector(".main-svg").clientWidth : 0,
      words: Array.from(plot.querySelectorAll("text"), (text) => text.textContent).join(" | "),
    })),
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.querySelector(".plot .xtick text") || document.body).fill,
    sentence: document.querySelector(".sentence").textContent,
  }), "*");
})();
</script>
"""

_AROUND = """<!doctype html><title>both widths</title>
<script>
addEventListener("message", (event) => {
  const told = document.createElement("pre");
  told.className = "told";
  told.textContent = event.data;
  document.body.append(told);
});
</script>
<body>FRAMES</body>
"""


def looks(page, folder, scheme):
    """What a report looks like in a colour scheme, by width of the window; skips where there is no Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("chromium is not installed: nobody has looked at the page")
    watched = page.replace("<head>", f"<head>{_WATCH}", 1)
    before, end, after = watched.rpartition("</body>")
    folder.mkdir()
    (folder / "page.html").write_text(f"{before}{_TELL}{end}{after}", encoding="utf-8")
    frames = "".join(
        f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>' for width in WIDTHS
    )
    (folder / "around.html").write_text(_AROUND.replace("FRAMES", frames), encoding="utf-8")
    dump = _dump(chromium, folder, SCHEMES[scheme])
    told = [json.loads(html.unescape(text)) for text in re.findall(r'<pre class="told">(.*?)</pre>', dump, re.DOTALL)]
    return {each["width"]: each for each in told}


def _dump(chromium, folder, scheme):
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1400,1000",
            f"--blink-settings=preferredColorScheme={scheme}",
            "--virtual-time-budget=60000",
            "--dump-dom",
            (folder / "around.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout
