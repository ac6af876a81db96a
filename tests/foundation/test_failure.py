"""FirstFailure: remembered, passed on once."""

import threading

from enginecore.failure import FirstFailure


def test_the_first_failure_counts_and_each_callback_hears_of_it_once():
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []
    failure.register(heard.append)
    first, second = ValueError("first"), ValueError("second")
    assert failure.error is None
    assert failure.fail(first)
    assert not failure.fail(second)
    assert failure.error is first
    assert heard == [first]


def test_a_callback_that_comes_late_is_called_at_once():
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []
    failure.fail(ValueError("gone"))
    failure.register(heard.append)
    assert heard == [failure.error]


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog):
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []

    def broken(error):
        raise RuntimeError("no")

    failure.register(broken)
    failure.register(heard.append)
    failure.fail(ValueError("gone"))
    assert heard == [failure.error]
    assert "a failure callback of the engine has failed itself" in caplog.text


def test_nothing_is_remembered_and_no_callback_called_after_an_orderly_end():
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []
    failure.register(heard.append)
    failure.close()
    failure.register(heard.append)
    assert not failure.fail(ValueError("late"))
    assert failure.error is None
    assert heard == []


def test_a_callback_may_register_and_fail_in_turn():
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []

    def fail_again(error):
        failure.register(heard.append)
        failure.fail(ValueError("again"))

    failure.register(fail_again)
    failure.fail(ValueError("gone"))
    assert heard == [failure.error]


def test_of_many_threads_one_is_the_first():
    failure = FirstFailure("the engine")
    heard: list[BaseException] = []
    first: list[int] = []
    failure.register(heard.append)
    barrier = threading.Barrier(8)

    def fail(number):
        barrier.wait()
        if failure.fail(ValueError(number)):
            first.append(number)

    threads = [threading.Thread(target=fail, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first) == 1
    assert [str(error) for error in heard] == [str(first[0])]
