"""Hashes of workloads."""

from hashlib import sha256

import msgspec

from enginecore_lab.workload import Workload, WorkloadRequest


def workload_hash(workload: Workload) -> str:
    """SHA-256 of all that is asked, in hexadecimal: the same in every process. Its name does not count."""
    frame = msgspec.structs.replace(workload, name="", requests=(), think_time=float(workload.think_time))
    whole = sha256(msgspec.json.encode(frame))
    encoder = msgspec.json.Encoder()
    for request in workload.requests:
        whole.update(encoder.encode(_plain(request)))
    return whole.hexdigest()


def _plain(request: WorkloadRequest) -> WorkloadRequest:
    """The request with floats for numbers: 0 and 0.0 are the same."""
    return msgspec.structs.replace(
        request, arrival=float(request.arrival), delay=float(request.delay), priority=float(request.priority)
    )
