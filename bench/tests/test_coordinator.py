"""Starting, asking and ending a coordinator, with a script that stands in for `baton`."""

import pathlib
import sys
import tempfile
import unittest

from common import coordinator

# `serve` runs until it is told to end, `status` answers as soon as that is there.
FAKE = """#!{python}
import json, pathlib, signal, sys, time
socket = pathlib.Path(sys.argv[sys.argv.index("--socket") + 1])
if sys.argv[1] == "serve":
    if "--arena=none" in sys.argv or "0MiB" in sys.argv:
        sys.exit("baton: no arena")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    socket.write_text(" ".join(sys.argv))
    time.sleep(60)
elif sys.argv[1] == "evict":
    sys.exit("baton: no room" if sys.argv[-1] == "large" else 0)
elif sys.argv[1] == "status":
    if not socket.exists():
        sys.exit(1)
    pool = {{"bytes": 100, "ready_bytes": 100}}
    print(json.dumps({{"host_pool": pool, "tenants": [{{"name": "a"}}], "argv": sys.argv}}))
"""


class Lifecycle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        command = self.folder / "baton"
        command.write_text(FAKE.format(python=sys.executable))
        command.chmod(0o755)
        self.driver = coordinator.Driver(coordinator.Install.of(command), "sim")

    def test_it_is_ready_when_its_host_pool_is_and_ends_as_asked(self):
        serving = coordinator.Coordinator(self.driver, 7 << 20, "1GiB", "5ms")
        with serving:
            said = serving.socket.read_text()
            self.assertEqual(serving.tenant("a"), {"name": "a"})
            self.assertIsNone(serving.tenant("b"))
            self.assertGreater(serving.evict("a"), 0)
            with self.assertRaisesRegex(coordinator.NoCoordinator, "large was not .* no room"):
                serving.evict("large")
            argv = serving.run("a", ["true"], "latency")
            self.assertEqual(argv[-4:], ["--class", "latency", "--", "true"])
        self.assertEqual(serving.process.returncode, 0)
        self.assertIn("--driver sim", said)
        self.assertIn("--arena 6MiB --host-pool 1GiB --quantum 5ms", said)

    def test_one_that_ends_at_once_says_why(self):
        with self.assertRaisesRegex(coordinator.NoCoordinator, "no arena"):
            with coordinator.Coordinator(self.driver, 0, "1GiB"):
                pass

    def test_files_that_are_not_there_are_named(self):
        self.assertEqual(self.driver.install.missing(), ["libbaton.so"])
        self.assertEqual(coordinator.Install.of(self.folder).folder, self.folder.resolve())

    def test_a_bare_program_finds_the_simulated_driver(self):
        settings = self.driver.bare(self.folder)
        place = settings["LD_LIBRARY_PATH"].split(":")[0]
        link = pathlib.Path(place, "libcuda.so.1")
        self.assertEqual(link.readlink(), self.folder.resolve() / "libsimcuda.so")
        self.assertIn("SIMCUDA_GPU_FILE", settings)
        self.assertEqual(coordinator.Driver(self.driver.install).bare(self.folder), {})


class Sizes(unittest.TestCase):
    def test_sizes_are_read_as_people_write_them(self):
        self.assertEqual(coordinator.parse_bytes("1.5GiB"), 3 << 29)
        self.assertEqual(coordinator.parse_bytes("4096"), 4096)
        for wrong in ("", "GiB", "1 TB", "1.2.3MiB"):
            with self.assertRaises(ValueError):
                coordinator.parse_bytes(wrong)

    def test_the_command_line_gets_whole_granules(self):
        self.assertEqual(coordinator.word((5 << 20) + 1), "4MiB")
        self.assertEqual(coordinator.word("90%"), "90%")


if __name__ == "__main__":
    unittest.main()
