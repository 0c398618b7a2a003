"""A busy server refuses with a sentence, and one that stops answers what it has accepted."""

import contextlib
import gc
import http.client
import json
import logging
import shutil
import signal
import socket
import threading
import urllib.error

import pytest

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.folder import read_folder
from specdec_plugin.serve.__main__ import main
from specdec_plugin.serve.decoding import Decoder, Key, Offered, offered
from specdec_plugin.serve.questions import Limits
from tests.support.servers import Process, at_once, in_a_thread, until

uvicorn = pytest.importorskip("uvicorn")  # of the extra serve, as all that follows
app = pytest.importorskip("specdec_plugin.serve.app")
stopping = pytest.importorskip("specdec_plugin.serve.stopping")
Server = app.Server


class Held(Decoder):
    """Waits until it is let."""

    def __init__(self, session):
        super().__init__(session)
        self.let, self.batches = threading.Event(), []

    def decode(self, key, pieces):
        self.batches.append(len(pieces))
        assert self.let.wait(60)
        if any("▁nine" in each for each in pieces):
            raise MemoryError("no room")
        return super().decode(key, pieces)


@pytest.fixture(scope="module")
def session(packed):
    return specdec_plugin.load_session(str(packed))


@pytest.fixture
def held(session):
    return Held(session)


def serve(held, **limits):
    return in_a_thread(Server([held], [Offered("greedy", "")], Limits(**limits), 8).app())


def in_background(call):
    """Calls in a thread; a list that its result will be in."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return found, thread


def test_a_full_queue(held, session):
    """One request is decoded, two sentences wait, and what is more is refused."""
    with serve(held, sentences=2) as client:
        first, thread = in_background(lambda: client.translate("one"))
        until(lambda: held.batches)
        second, other = in_background(lambda: client.translate("two\nthree"))
        until(lambda: client.get("/health").json()["waiting"] == 2)
        assert client.metric("specdec_waiting") == 2
        answer = client.translate("four")
        assert answer.status == 503 and answer.headers["retry-after"] == "5"
        assert answer.json() == {
            "error": "The server is busy: 2 sentences wait, of at most 2. Ask again in some "
            "seconds, or send fewer at once."
        }
        held.let.set()
        thread.join()
        other.join()
        plain = [each.text for each in session.translator().translate(["one", "two", "three"])]
        assert first[0].json() == {"translatedText": plain[0]}
        assert second[0].json() == {"translatedText": f"{plain[1]}\n{plain[2]}"}
        assert client.translate("four").status == 200 and held.batches == [1, 2, 1]


def test_too_many_requests_of_a_client(held):
    with serve(held, requests=2) as client:
        waiting = [in_background(lambda: client.translate("one")) for _ in range(2)]
        until(lambda: client.metric("specdec_open_requests") == 3)  # and the one that asks
        answer = client.translate("one")
        assert answer.status == 429 and answer.headers["retry-after"] == "1"
        assert "2 requests of yours are not answered yet" in answer.json()["error"]
        held.let.set()
        for found, thread in waiting:
            thread.join()
            assert found[0].status == 200
        assert client.translate("one").status == 200


def test_a_request_that_fails_fails_alone(held, caplog):
    with serve(held) as client, caplog.at_level(logging.ERROR):
        first, thread = in_background(lambda: client.translate("one"))
        until(lambda: held.batches)
        others = [in_background(lambda q=q: client.translate(q)) for q in ("nine", "two")]
        until(lambda: client.get("/health").json()["waiting"] == 2)
        held.let.set()
        for _, each in [(first, thread), *others]:
            each.join()
        assert first[0].status == others[1][0][0].status == 200
        assert others[0][0][0].status == 500
        assert others[0][0][0].json()["error"].startswith("The server failed to decode this.")
    assert "MemoryError: no room" in caplog.text


def test_a_client_that_leaves_disturbs_nobody(held):
    with serve(held, requests=1) as client:
        for path in ("/translate", "/stream"):
            connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
            content = json.dumps({"q": "one", "source": "en", "target": "es"})
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            if path == "/stream":
                connection.getresponse().read(10)
            else:
                until(lambda: held.batches)
            connection.close()
            held.let.set()
            until(lambda: client.translate("one").status == 200)  # it is counted no more


@pytest.mark.parametrize("path", ["/translate", "/steps"])
def test_what_a_client_that_has_left_asked_for_is_not_decoded(held, path, caplog):
    """It makes room for what others ask for, and is no error."""
    gc.collect()  # what earlier tests have left may warn at its end
    caplog.clear()
    with serve(held, sentences=3) as client, caplog.at_level(logging.WARNING):
        first, thread = in_background(lambda: client.translate("one"))
        until(lambda: held.batches)
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        if path == "/steps":
            connection.request("GET", f"{path}?method=greedy&q=two")
        else:
            q = json.dumps({"q": "two\nthree\nfour", "source": "en", "target": "es"}).encode()
            connection.request("POST", path, q, {"Content-Type": "application/json"})
        until(lambda: client.metric("specdec_waiting") > 0)
        connection.close()
        left = f'specdec_requests_total{{path="{path}",status="400"}}'
        until(lambda: client.metric(left) == 1)
        second, other = in_background(lambda: client.translate("five\nsix\nseven"))
        until(lambda: client.metric("specdec_open_requests") == 3)
        held.let.set()
        thread.join()
        other.join()
        assert first[0].status == second[0].status == 200
        assert held.batches == [1, 3]
    gc.collect()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def half_a_request(port, header=b"Accept: */*"):
    """A connection whose request goes on."""
    connection = socket.create_connection(("127.0.0.1", port))
    length = b"Content-Length: 50"
    lines = [b"POST /translate HTTP/1.1", b"Host: x", length, header, b"", b"{"]
    connection.sendall(b"\r\n".join(lines))
    return connection


def test_no_client_has_another_address_than_its_own(packed):
    process = Process(packed, "--max-requests", 1)
    client = process.ready()
    with half_a_request(client.port, b"X-Forwarded-For: 10.0.0.1"):
        until(lambda: client.metric("specdec_open_requests") == 2)
        with half_a_request(client.port, b"X-Forwarded-For: 10.0.0.2") as other:
            other.settimeout(20)
            assert other.recv(1000).startswith(b"HTTP/1.1 429 ")
    assert process.stop()[0] == 0


def test_a_client_that_leaves_in_its_request_is_no_failure(held, caplog):
    with serve(held, requests=1) as client, caplog.at_level(logging.ERROR):
        with half_a_request(client.port):
            until(lambda: client.metric("specdec_open_requests") == 2)
        until(lambda: client.metric("specdec_open_requests") == 1)
        assert client.metric('specdec_requests_total{path="/translate",status="400"}') == 1
        assert client.metric('specdec_requests_total{path="/translate",status="500"}') == 0
        held.let.set()
        assert client.translate("one").status == 200
    assert not caplog.records


def test_a_request_that_does_not_go_on_is_refused(held, monkeypatch):
    """A server that stops would wait for it for ever."""
    monkeypatch.setattr(app, "PATIENCE", 0.5)
    with serve(held) as client, half_a_request(client.port) as connection:
        connection.settimeout(20)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        sentence = "No more of the request came for 0.5 seconds. Send it again."
        assert json.loads(answer.read()) == {"error": sentence}
        assert connection.recv(1) == b""


def test_a_request_that_goes_on_for_ever_is_refused(held, monkeypatch):
    monkeypatch.setattr(app, "LONGEST", 0.5)
    with serve(held) as client, half_a_request(client.port) as connection:
        connection.settimeout(0.1)
        answer = b""
        for _ in range(40):
            connection.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(1000)
                break
        assert b" 408 " in answer and b"The request took 0.5 seconds. Send" in answer


def test_a_stopping_server_waits_for_work_and_not_for_clients_that_stall(held):
    served = Server([held], [Offered("greedy", "")], Limits(), 8)
    patience = 1.0
    with in_a_thread(served.app(), served.is_decoding, patience) as client:
        found, thread = in_background(lambda: client.translate("one"))
        until(lambda: held.batches)
        connection = half_a_request(client.port)
        until(lambda: client.metric("specdec_open_requests") == 3)
        threading.Timer(2 * patience, held.let.set).start()
    thread.join()
    assert found[0].status == 200
    with connection:
        connection.settimeout(20)
        assert connection.recv(1) == b""


def test_a_stopped_server_tells_how_many_clients_stalled(capsys):
    server = stopping.StoppingServer(uvicorn.Config(app), bool, 1.0)
    server.stalled = 2
    server.tell_end()
    first, last = capsys.readouterr().out.splitlines()
    assert first == "Connections closed because their clients stalled: 2."
    assert last == "Stopped: all accepted requests are answered."


def test_a_stopping_server_answers_what_it_has_accepted(held):
    with serve(held) as client:
        found, thread = in_background(lambda: client.translate("one"))
        until(lambda: held.batches)
        other, second = in_background(lambda: client.translate("two"))
        until(lambda: client.get("/health").json()["waiting"] == 1)
        threading.Timer(0.5, held.let.set).start()
    thread.join()
    second.join()
    assert [found[0].status, other[0].status] == [200, 200]


def test_sigterm_loses_no_accepted_request(packed, corpus):
    """In a real process; the end of each answer is awaited while sentences wait."""
    texts = ["\n".join(corpus.lines("train", "en")[start : start + 15]) for start in range(8)]
    process = Process(packed, "--batch-size", 1, "--max-characters", 10_000)
    client = process.ready()
    stopped = []

    def stop():
        until(lambda: client.metric("specdec_open_requests") == len(texts) + 1)
        assert client.get("/health").json()["waiting"] > 40
        stopped.append(process.stop())

    calls = [lambda text=text: client.translate(text, method="fairseq") for text in texts]
    *answers, _ = at_once([*calls, stop])
    assert stopped == [(0, "Stopped: all accepted requests are answered.\n")], process.errors
    translator = specdec_plugin.load(str(packed), decoding="fairseq")
    for text, answer in zip(texts[:2], answers[:2], strict=True):
        lines = [each.text for each in translator.translate(text.splitlines(), batch_size=8)]
        assert answer.json() == {"translatedText": "\n".join(lines)}
    assert [each.status for each in answers] == [200] * len(texts)
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        client.get("/health")


def test_a_killed_server_leaves_no_request_without_an_answer_or_an_error(packed, corpus):
    """Another one takes its address at once, and gives what is asked again."""
    texts = ["\n".join(corpus.lines("train", "en")[start : start + 15]) for start in range(4)]
    process = Process(packed, "--batch-size", 1, "--max-characters", 10_000)
    client = process.ready()

    def ask(text):
        try:
            return client.translate(text, method="fairseq").status
        except (ConnectionError, http.client.HTTPException) as error:
            return type(error)

    def kill():
        until(lambda: client.metric("specdec_open_requests") == len(texts) + 1)
        process.process.kill()

    *ends, _ = at_once([*(lambda text=text: ask(text) for text in texts), kill])
    assert len(ends) == len(texts) and None not in ends and 200 not in ends
    again = Process(packed, "--port", client.port)
    assert again.ready().translate(texts[0].splitlines()[0]).status == 200
    assert again.stop()[0] == 0


def test_a_second_ctrl_c_ends_it_at_once_and_says_so(packed, corpus):
    text = "\n".join(corpus.lines("train", "en")[:200])
    process = Process(packed, "--batch-size", 1, "--max-characters", 10_000)
    client = process.ready()

    def ask():
        try:
            return client.translate(text, method="fairseq").status
        except (ConnectionError, http.client.HTTPException):
            return None

    def is_closed():
        try:
            socket.create_connection(("127.0.0.1", client.port)).close()
        except ConnectionError:
            return True
        return False

    found, thread = in_background(ask)
    until(lambda: client.metric("specdec_waiting") > 100)
    process.process.send_signal(signal.SIGINT)
    until(is_closed)
    process.process.send_signal(signal.SIGINT)
    printed = process.process.stdout.read()
    assert process.process.wait(60) == 130, process.errors
    assert printed == "Stopped at once: requests that were not answered are lost.\n"
    thread.join()
    assert found[0] != 200 and "Traceback" not in process.errors


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--batch-size", "0"], "--batch-size 0: give at least 1"),
        (["--decoders", "0"], "--decoders 0: give at least 1"),
        (["--max-waiting", "0"], "--max-waiting 0: give at least 1"),
        (["--max-requests", "-1"], "--max-requests -1: give 0 or more"),
        (["--methods", "fast"], "--methods fast is unknown"),
        (
            ["--methods", "greedy,blockwise"],
            "blockwise needs heads, which .* specdec-pack --heads",
        ),
        (["--methods", "nat"], "--methods nat needs drafter, which .* specdec-pack --drafter"),
        (["--port", "99999"], "--port 99999: .* Give another address or port"),
    ],
)
def test_options_that_are_refused(packed, flags, words):
    with pytest.raises(PluginError, match=words):
        main([str(packed), *flags])


def test_a_folder_of_an_unknown_method_is_refused(packed, tmp_path):
    """Before anything is loaded."""
    folder = shutil.copytree(packed, tmp_path / "folder")
    content = json.loads((folder / "specdec.json").read_text("utf-8"))
    content["decoding"] = "repeat-last"
    (folder / "specdec.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(PluginError, match="to be decoded by repeat-last, which is unknown"):
        main([str(folder)])


def test_a_prefix_that_the_limit_cuts_is_refused(session):
    decoder, (pieces,) = Decoder(session), session.pieces(["one two"])
    with pytest.raises(PluginError, match="The prefix has 300 symbols, and the limit of length c"):
        decoder.decode(Key("greedy", prefix=" ".join(["uno"] * 300)), [pieces, pieces])
    (found,) = decoder.decode(Key("greedy", prefix="uno uno"), [pieces])
    assert found.text.startswith("uno uno")


def test_the_methods_that_are_named_are_all_that_is_offered(packed):
    folder = read_folder(str(packed))
    assert [each.name for each in offered(folder, ["greedy"])] == ["greedy"]
    assert [each.name for each in offered(folder, ["beam", "auto"])] == ["beam", "auto"]
    assert offered(folder)[0].name == "auto"


def test_a_stream_keeps_nothing_of_its_client(session):
    decoder, told = Decoder(session), []
    (pieces,) = session.pieces(["one two"])
    assert decoder.stream(Key("greedy"), pieces, told.append)["iterations"] == len(told) > 0
    translator = decoder._translator(Key("greedy"))
    assert translator.generator.loop.watcher is None
    before = len(told)
    decoder.decode(Key("greedy"), [pieces])
    assert len(told) == before


def test_an_address_that_is_taken(packed):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(PluginError, match=rf"--port {port}: .*in use"):
            main([str(packed), "--port", port])


def test_folders_that_are_refused(packed, tmp_path):
    with pytest.raises(PluginError, match=r"has no specdec\.json"):
        main([str(tmp_path)])
    with pytest.raises(PluginError, match=r"^There is no folder .*none\."):
        main([str(tmp_path / "none")])
    with pytest.raises(PluginError, match=r"dict\.en\.txt is a file\. Name a folder with"):
        main([str(packed / "dict.en.txt")])
    content = json.loads((packed / "specdec.json").read_text("utf-8"))
    for path in packed.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "specdec.json").unlink()
    del content["subwords"]
    (tmp_path / "specdec.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(PluginError, match="does not tell how raw text is split"):
        main([str(tmp_path)])


def test_a_signal_right_after_the_first_line_stops_it(packed):
    for number in (signal.SIGTERM, signal.SIGINT):
        process = Process(packed)
        process.ready()
        process.process.send_signal(number)
        assert process.process.wait(60) == 0, process.errors
