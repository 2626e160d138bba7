"""LLM servers that share a GPU: what is made of their answers, and the script against a server that answers at once."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import report
from common import current, serving_llms
from loads import llm_servers
from tests.test_report import MACHINE, words_of

BENCH = pathlib.Path(__file__).resolve().parents[1]
# Stands for vLLM's server, by whose module's name it is started: tokens follow from the prompt.
SERVER = """
import argparse, http.server, json, os
parser = argparse.ArgumentParser(); parser.add_argument("--port", type=int)
wrong = os.environ.get("LD_PRELOAD") and os.environ.get("WRONG_UNDER_BATON")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200); self.end_headers()
        for at in range(asked["max_tokens"]):
            token = (sum(asked["prompt"]) * (at + 1) + bool(wrong)) % 32000
            event = {"choices": [{"token_ids": [token]}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
        self.wfile.write(b"data: [DONE]\\n\\n")
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", parser.parse_known_args()[0].port), Handler).serve_forever()
"""


def answer(first_ms, tokens):
    """The record of one."""
    return {"first_ms": first_ms, "per_token_ms": 1.0, "tokens": tokens}


def run(switch_tokens, graphs=False, date="2026-01-01T00:00:00Z"):
    """A run of one server, asked twice."""
    asked = [
        {
            "switch": answer(100.0 + at, list(switch_tokens)),
            "resident": answer(12.0, [1, 2]),
            "moved": {"bytes_in": 5e9, "bytes_out": 0},
            "phases": None,
        }
        for at in range(2)
    ]
    return {
        "kind": "llm",
        "machine": MACHINE | {"date": date},
        "engine": "vllm",
        "graphs": graphs,
        "models": ["1b"],
        "share": 0.9,
        "rest_s": 1,
        "weights": {"1b": 2_000_000_000},
        "bus_gbps": 50.0,
        "alone": {"1b": {"ready_s": 1, "answers": [answer(10.0, [1, 2]) for _ in range(2)]}},
        "together": {"1b": "starts"},
        "baton": {"servers": {"1b": asked}},
    }


class Rows(unittest.TestCase):
    """The table."""

    def test_a_limit_is_the_resident_first_token_and_the_weights_over_the_bus(self):
        result = run([1, 2])
        serving_llms.judge(result)
        switch = serving_llms.rows(result)[-1]
        self.assertEqual(switch[:7], ["1b", "after a switch", 2, "100.5", "101.0", "50", "2.01"])
        self.assertEqual(switch[-3:], ["5.00", "0.00", "2 of 2 equal"])
        self.assertFalse(serving_llms.differs(result))

    def test_one_token_that_differs_is_told(self):
        result = run([1, 3])
        serving_llms.judge(result)
        self.assertEqual(serving_llms.rows(result)[-1][-1], "0 of 2 equal")
        self.assertTrue(serving_llms.differs(result))
        self.assertNotIn("[1, 3]", json.dumps(result), "the tokens themselves are not kept")

    def test_beside_a_training_tokens_are_compared_prompt_by_prompt_and_steps_are_a_part_of_those_alone(self):
        result = run([1, 2])
        answers = [answer(11.0, [1, 2]), answer(12.0, [1, 2]), answer(13.0, [1, 3])]
        steps = {"alone": 8.0, "beside": 2.0}
        beside = {"share": 0.5, "trained": "corun_bert", "answers": answers, "steps_per_second": steps}
        result["beside"] = [beside | {"moved": None}]
        serving_llms.judge(result)
        row = serving_llms.beside_rows(result)[0]
        self.assertEqual(row[:7], ["1b", "0.5", "bert", 3, "12.0", "13.0", "1.30"])
        self.assertEqual(row[8:], ["1.00", "0.25", "", "", "2 of 3 equal"])
        self.assertTrue(serving_llms.differs(result))
        self.assertNotIn("[1, 3]", json.dumps(result), "the tokens themselves are not kept")

    def test_two_servers_of_a_model_have_two_names(self):
        names = list(serving_llms.names_of(["7b", "1b", "1b"]))
        self.assertEqual(names, [("7b", "7b"), ("1b", "1b"), ("1b-2", "1b")])

    def test_two_servers_have_a_picture_of_their_memory_and_first_tokens(self):
        result = run([1, 2])
        self.assertEqual(report.drawn("llm", [result]), {}, "of one server there is none")
        result["models"] = ["1b", "1b"]
        result["machine"] = MACHINE | {"gpus": [{**MACHINE["gpus"][0], "memory.total": "81920 MiB"}]}
        servers = result["baton"]["servers"]
        servers["1b-2"] = servers["1b"]
        sizes = {"resident_bytes": 2**30, "evicted_bytes": 69 * 2**30}
        result["baton"]["programs"] = [{"name": name, **sizes} for name in servers]
        (_, svg) = report.drawn("llm", [result])["llm.svg"]
        for said in ("1b-2: 70 GiB", "all that the GPU has: 80 GiB", "100 ms", "1b: first token"):
            self.assertIn(said, words_of(svg))

    def test_models_weigh_what_their_makers_say(self):
        self.assertEqual(llm_servers.parameters("7b"), 6_738_415_616)
        self.assertEqual(llm_servers.parameters("1b"), 1_100_048_384)

    def test_the_newest_run_of_each_way_counts_and_is_reported(self):
        runs = [run([1, 2]), run([1, 2], graphs=True), run([1, 2], date="2026-01-02T00:00:00Z")]
        for one in runs:
            serving_llms.judge(one)
        kept = current.pruned("llm", runs)
        self.assertEqual([one["graphs"] for one in kept], [True, False])
        self.assertIn("vllm, with CUDA graphs", report.llm_section(kept))


class Script(unittest.TestCase):
    """The script itself, without a GPU."""

    def ran(self, folder, **settings):
        """Runs it with a `baton` that starts what it is told, and answers as a coordinator with nothing to tell."""
        package = pathlib.Path(folder, "site/vllm/entrypoints/openai")
        package.mkdir(parents=True)
        (package / "api_server.py").write_text(SERVER)
        baton = pathlib.Path(folder, "bin/baton")
        baton.parent.mkdir()
        status = {"recent": [], "bytes_in": 0, "bytes_out": 0, "tenants": [], "arena": {}}
        status["host_pool"] = {"bytes": 1, "ready_bytes": 1}
        baton.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            f"status) echo '{json.dumps(status)}';;\n"
            "serve) exec sleep 100;;\n"
            'run) while [ "$1" != -- ]; do shift; done; shift; LD_PRELOAD=./libbaton.so exec "$@" 2>&-;;\n'
            "esac\n"
        )
        baton.chmod(0o755)
        (baton.parent / "libbaton.so").touch()
        out = pathlib.Path(folder, "out.json")
        argv = [sys.executable, str(BENCH / "llm.py"), "--baton", str(baton.parent), "--bus", "50"]
        argv += ["--site", str(pathlib.Path(folder, "site")), "--models", "tiny", "tiny", "--rounds", "2"]
        argv += ["--tokens", "3", "--rest", "0", "--out", str(out), "--parts", "alone", "together", "baton"]
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **settings})
        return done, json.loads(out.read_text())

    def test_servers_that_answer_as_alone_are_equal_and_others_are_not(self):
        for settings, equal, code in (({}, 2, 0), ({"WRONG_UNDER_BATON": "1"}, 0, 1)):
            with self.subTest(settings), tempfile.TemporaryDirectory() as folder:
                done, result = self.ran(folder, **settings)
                self.assertEqual(done.returncode, code, done.stderr + done.stdout)
                said = [row[-1] for row in serving_llms.rows(result)[1:]]
                self.assertEqual(said, [f"{equal} of 2 equal"] * 4)
                self.assertEqual(set(result["together"].values()), {"starts"})


if __name__ == "__main__":
    unittest.main()
