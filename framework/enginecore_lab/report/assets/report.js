"use strict";

// Draws every picture, in the colours of the style sheet: again when the reader changes between light and dark.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");

  const coloured = (value, style) => {
    if (typeof value === "string") {
      return /^var\(--[a-z0-9-]+\)$/.test(value) ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) return value.map((each) => coloured(each, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each, style)]));
  };

  const template = () => {
    const axis = {
      gridcolor: "var(--grid)", linecolor: "var(--rule)", zerolinecolor: "var(--muted)", zeroline: false,
      title: { font: { size: 12.5 } },
    };
    return {
      layout: {
        xaxis: axis, yaxis: axis,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: "var(--ink)", family: getComputedStyle(document.body).fontFamily, size: 12.5 },
        hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--rule)", font: { color: "var(--ink)" } },
        legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" },
        margin: { l: 10, r: 14, t: 10, b: 10 },
        dragmode: coarse.matches ? false : "zoom",  // on a phone a drag is for scrolling the page
      },
    };
  };

  const draw = async () => {
    const style = getComputedStyle(document.documentElement);
    const config = { responsive: true, displaylogo: false, displayModeBar: false };
    let drawn = 0;
    for (const [id, { data, layout }] of Object.entries(figures)) {
      const themed = coloured({ data, layout: { ...layout, template: template() } }, style);
      await Plotly.react(id, themed.data, themed.layout, config);
      drawn += 1;
    }
    document.documentElement.dataset.drawn = `${dark.matches ? "dark" : "light"} ${drawn}`;
  };

  dark.addEventListener("change", draw);
  draw();
})();
