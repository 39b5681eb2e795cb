"""Kills and stops ranks and launchers at bad moments: everything must end soon, and report the reason.

Usage: deaths_test.py PROGRAM STOP_IN_RANKS    (the library made of stop_in_ranks.cpp)
"""
import socket
import sys

from support import *

STOP_IN_RANKS = sys.argv.pop(1) if len(sys.argv) > 1 else None


def is_connected(port):
    """Whether this host has an established connection to `port`."""
    lines = [line.split() for name in ("tcp", "tcp6")
             for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(line[2].endswith(f":{port:04X}") and line[3] == "01" for line in lines)


def ranks_of(run):
    return [pid for pid in descendants(run.pid) if name_of(pid) != "output-relay"]


def is_stopped(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except OSError:
        return False


class Deaths(SystemTest):
    def assert_all_gone(self, pids, seconds=2):
        wait_until(lambda: not any(map(is_running, pids)), "all ranks are gone", seconds)

    def ranks_in_training(self, run, count):
        """Waits until the ranks train, and returns their processes."""
        run.wait_for_text(FIRST_EPOCH)
        ranks = ranks_of(run)
        self.assertEqual(len(ranks), count)
        return ranks

    def test_a_killed_rank_is_named_and_all_end(self):
        run = self.train(*ENDLESS, "--nproc-per-node", "3")
        ranks = self.ranks_in_training(run, 3)
        begin = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        self.assertEqual(run.wait(), 1)
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual(len(run.errors()), 1, run.text())
        self.assertRegex(run.errors()[0], r"rank \d was killed by signal 9")
        self.assert_all_gone(ranks)

    def test_no_orphan_survives_a_killed_launcher(self):
        run = self.train(*ENDLESS, "--nproc-per-node", "2")
        ranks = self.ranks_in_training(run, 2)
        os.kill(run.pid, signal.SIGKILL)
        self.assert_all_gone(ranks)

    def test_ctrl_c_ends_all(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            # A terminal sends SIGINT to the whole group, kill(1) sends SIGTERM to the launcher only.
            run = self.train(*ENDLESS, "--nproc-per-node", "2", start_new_session=True)
            ranks = self.ranks_in_training(run, 2)
            begin = time.monotonic()
            if number == signal.SIGINT:
                os.killpg(run.pid, number)
            else:
                os.kill(run.pid, number)
            self.assertEqual(run.wait(), code, run.text())
            self.assertLess(time.monotonic() - begin, 2)
            self.assert_all_gone(ranks)

    def test_a_rank_that_is_stopped_as_it_starts_ends_the_job_at_the_deadline(self):
        run = self.train("--timeout", "2", *ENDLESS, "--nproc-per-node", "2")
        # The relay is forked first, and has its own name by the time both ranks exist.
        wait_until(lambda: len(ranks_of(run)) == 2 and len(descendants(run.pid)) == 3, "the ranks are there")
        os.kill(ranks_of(run)[0], signal.SIGSTOP)
        self.assertEqual(run.wait(40), 1, run.text())
        self.assertEqual(len(run.errors()), 1, run.text())
        self.assertRegex(run.errors()[0], r"rank 1 waited \S+ s")

    def test_ranks_that_are_all_stopped_as_they_start_are_named_by_the_launcher(self):
        # All ranks are stopped, so that none of them can notice a deadline itself.
        commands = {"train": ["train", "mnist", "--data", self.data], "bench comm": ["bench", "comm", "--sizes", "4"],
                    "bench step": ["bench", "step"]}
        begin = time.monotonic()
        jobs = []
        for name, command in commands.items():
            run = self.start([PROGRAM, *command, "--nproc-per-node", "2", "--timeout", "1"],
                             environment={"LD_PRELOAD": STOP_IN_RANKS})
            wait_until(lambda: sum(map(is_stopped, descendants(run.pid))) == 2, f"both ranks of {name} are stopped")
            jobs.append((name, run, [pid for pid in descendants(run.pid) if is_stopped(pid)]))
        for name, run, ranks in jobs:
            with self.subTest(name):
                self.assertEqual(run.wait(25), 1, run.text())
                self.assertLess(time.monotonic() - begin, 20)
                self.assertEqual(len(run.errors()), 1, run.text())
                self.assertIn("ranks 0, 1 have not joined the group within 1 s: stopped by a signal",
                              run.errors()[0])
                self.assert_all_gone(ranks)

    def test_ranks_that_have_met_have_all_the_time(self):
        run = self.train("--timeout", "2", *ENDLESS, "--nproc-per-node", "2")
        # Stopped ranks do not notice their own deadlines, however slow the machine is. The launcher would end ranks
        # that have not joined two seconds after the timeout.
        for rank in self.ranks_in_training(run, 2):
            os.kill(rank, signal.SIGSTOP)
        with self.assertRaises(subprocess.TimeoutExpired, msg=run.text()):
            run.process.wait(timeout=5)
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(20), 130, run.text())

    def test_a_silent_listener_is_not_awaited_for_ever(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            run = self.train("--timeout", "1", environment=self.place(1, 2, port))
            self.assertEqual(run.wait(20), 1)
        self.assertEqual(len(run.errors()), 1, run.text())
        self.assertIn(f"rank 1 waited 1 s for an answer of the store at 127.0.0.1:{port}", run.errors()[0])

    def test_a_rank_that_never_comes_is_named(self):
        run = self.train("--timeout", "1", environment=self.place(0, 2, free_port()))
        self.assertEqual(run.wait(20), 1)
        self.assertEqual(len(run.errors()), 1, run.text())
        self.assertIn("rank 0 waited 1 s for rank 1 of 2 in the roll call", run.errors()[0])

    def test_rank_zero_that_never_comes_is_told(self):
        run = self.train("--timeout", "1", environment=self.place(1, 2, free_port()))
        self.assertEqual(run.wait(20), 1)
        self.assertIn("nobody listens at 127.0.0.1:", run.errors()[0])

    def test_a_rank_that_dies_during_the_rendezvous(self):
        port = free_port()
        first = self.train("--timeout", "4", environment=self.place(0, 3, port))
        second = self.train("--timeout", "60", environment=self.place(1, 3, port))
        # Rank 2 never comes, so that rank 1 is certainly in the rendezvous when it dies.
        wait_until(lambda: is_connected(port), "they are connected")
        second.kill()
        self.assertEqual(first.wait(20), 1)
        self.assertRegex(first.errors()[0], r"rank 0 waited 4 s for ranks? .*2 of 3 in the roll call")

    def test_a_peer_that_dies_in_training_is_named_without_a_launcher(self):
        for backend, victim in (("shm", 1), ("shm", 0), ("gloo", 1), ("gloo", 0)):
            port = free_port()
            runs = [self.train(*ENDLESS, "--backend", backend, environment=self.place(rank, 2, port))
                    for rank in (0, 1)]
            runs[0].wait_for_text(FIRST_EPOCH)
            survivor = runs[1 - victim]
            begin = time.monotonic()
            runs[victim].process.kill()
            self.assertEqual(survivor.wait(20), 1, survivor.text())
            self.assertLess(time.monotonic() - begin, 3)
            self.assertEqual(len(survivor.errors()), 1, survivor.text())
            self.assertNotIn("frame #", survivor.text())
            self.assertRegex(survivor.errors()[0], rf"rank {victim} (\(process \d+\) )?died")

    def test_a_busy_port(self):
        import socket
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            run = self.train(environment=self.place(0, 2, listener.getsockname()[1]))
            self.assertEqual(run.wait(20), 1)
            self.assertEqual(len(run.errors()), 1, run.text())
            self.assertIn("Address already in use", run.errors()[0])

    def test_contradicting_world_sizes(self):
        port = free_port()
        first = self.train("--timeout", "5", environment=self.place(0, 2, port))
        second = self.train("--timeout", "5", environment=self.place(1, 3, port, LOCAL_WORLD_SIZE=3))
        self.assertEqual([first.wait(20), second.wait(20)], [1, 1])
        self.assertIn("was started with a world of", first.text() + second.text())


if __name__ == "__main__":
    unittest.main()
