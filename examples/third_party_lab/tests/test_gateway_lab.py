"""The loader by a log of three lines, the metric by requests made by hand."""

from array import array

import pytest
from gateway_lab.stalls import StalledShare

from enginecore.errors import ConfigurationError
from enginecore.messages import FinishReason
from enginecore_lab.run import RequestRun
from enginecore_lab.workload import WorkloadRequest
from enginecore_lab.workloads import read_workload

LOG = "time\tcustomer\tprompt\tcompletion\n5.0\tchat\t10\t3\n6.5\tbooks\t4000\t7\n8.0\tchat\t20\t2\n"


class Requests:
    """A run of which nothing but the requests is known."""

    def __init__(self, *requests):
        self.requests = requests


def ended(*token_times, reason=FinishReason.LENGTH):
    request = WorkloadRequest(request_id="r", arrival=0.0, num_prompt_tokens=1, num_output_tokens=len(token_times))
    return RequestRun(request, 0.0, token_times=array("d", token_times), finish_reason=reason)


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log.tsv").write_text(LOG)
    return str(tmp_path / "log.tsv")


def test_requests_are_those_of_the_log(log):
    made = read_workload({"kind": "gateway-log", "path": log}).make(0, 0)
    assert [each.arrival for each in made.requests] == [0.0, 1.5, 3.0]
    assert [each.tenant for each in made.requests] == ["chat", "books", "chat"]
    assert (made.requests[1].num_prompt_tokens, made.requests[1].num_output_tokens) == (4000, 7)


def test_customers_and_what_every_workload_can_be_told(log):
    table = {"kind": "gateway-log", "path": log, "customers": ["chat"], "rate_scale": 2}
    assert [each.arrival for each in read_workload(table).make(0, 0).requests] == [0.0, 1.5]


def test_unknown_keys_and_customers_are_named(log):
    with pytest.raises(ConfigurationError, match="'customer' is no setting here; did you mean customers"):
        read_workload({"kind": "gateway-log", "path": log, "customer": "chat"})
    with pytest.raises(ConfigurationError, match="holds no requests of news"):
        read_workload({"kind": "gateway-log", "path": log, "customers": ["news"]}).make(0, 0)


def test_stalls_are_gaps_that_are_too_long_and_requests_that_failed():
    run = Requests(ended(1.0, 1.1, 1.2), ended(1.0, 1.5), ended(1.0), ended(1.0, reason=FinishReason.ERROR))
    assert StalledShare().compute(run) == 0.5
