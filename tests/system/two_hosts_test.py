"""Two hosts: two network namespaces connected by a wire. Each host has its own PID namespace, so that the hosts
cannot see each other's processes. Needs root.

Usage: two_hosts_test.py PROGRAM
"""
import json

from support import *


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def can_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    probe = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"], capture_output=True)
    return probe.returncode == 0


@unittest.skipUnless(can_make_namespaces(), "needs root, ip and unshare, to make network namespaces")
class TwoHosts(SystemTest):
    ADDRESSES = ("10.213.77.1", "10.213.77.2")
    SECRET = "what-no-other-machine-on-the-wire-knows"

    def setUp(self):
        super().setUp()
        self.hosts = [f"lockstep-{os.getpid()}-{i}" for i in (0, 1)]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "delete", host)
        wires = [f"ls{os.getpid() % 100000}w{i}" for i in (0, 1)]
        ip("link", "add", wires[0], "netns", self.hosts[0], "type", "veth", "peer", "name", wires[1],
           "netns", self.hosts[1])
        self.wires = wires
        for host, wire, address in zip(self.hosts, wires, self.ADDRESSES):
            ip("-n", host, "address", "add", f"{address}/24", "dev", wire)
            ip("-n", host, "link", "set", wire, "up")
            ip("-n", host, "link", "set", "lo", "up")

    def on_host(self, host, *arguments, port=29517, **more):
        place = self.place(host, 2, port, MASTER_ADDR=self.ADDRESSES[0], LOCAL_RANK=0, LOCAL_WORLD_SIZE=1,
                           LOCKSTEP_SECRET=self.SECRET)
        prefix = ["ip", "netns", "exec", self.hosts[host], "unshare", "--pid", "--fork", "--kill-child",
                  "--mount-proc"]
        return self.train("--threads", "1", *arguments, prefix=prefix, environment={**place, **more})

    def ranks_on_host(self, host, count, *arguments, port=29518, master=None, hosts_file=None, **more):
        """Starts `count` ranks that share processes and network, as on one machine, with an /etc/hosts of its own."""
        places = [self.place(host * count + local, 2 * count, port, MASTER_ADDR=master or self.ADDRESSES[0],
                             LOCAL_RANK=local, LOCAL_WORLD_SIZE=count, LOCKSTEP_SECRET=self.SECRET) | more
                  for local in range(count)]
        ranks = [" ".join(f"{key}={value}" for key, value in place.items()) + ' "$@" & pids="$pids $!"'
                 for place in places]
        # Exits with 1 if a rank does.
        mounted = [f"mount --bind {hosts_file} /etc/hosts || exit"] if hosts_file else []
        script = "\n".join([*mounted, *ranks, "result=0", 'for pid in $pids; do wait "$pid" || result=1; done',
                            "exit $result"])
        return self.train("--threads", "1", *arguments,
                          prefix=["ip", "netns", "exec", self.hosts[host], "unshare", "--pid", "--fork",
                                  "--kill-child", "--mount-proc", "sh", "-c", script, "sh"])

    def ranks_of(self, run):
        """The processes of a host's ranks, by rank: those with RANK in their environment."""
        found = {}
        for pid in descendants(run.pid):
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
            except OSError:
                continue
            found.update({int(each[5:]): pid for each in variables if each.startswith("RANK=")})
        return [found[rank] for rank in sorted(found)]

    def test_two_ranks_on_each_host_train_in_two_levels(self):
        reports = [self.folder / name for name in ("levels.json", "alone.json")]
        runs = [self.ranks_on_host(host, 2, "--max-epochs", "2", "--json", reports[0]) for host in (0, 1)]
        self.assertEqual([run.wait() for run in runs], [0, 0], runs[0].text() + runs[1].text())
        alone = self.train("--threads", "1", "--max-epochs", "2", "--json", reports[1], "--backend", "shm",
                           "--nproc-per-node", "4")
        self.assertEqual(alone.wait(), 0, alone.text())
        levels, one_host = (json.loads(report.read_text()) for report in reports)
        self.assertEqual((levels["backend"], one_host["backend"]), ("hierarchical", "shm"))
        for ours, theirs in zip(levels["epochs"], one_host["epochs"]):
            self.assertAlmostEqual(ours["train_loss"], theirs["train_loss"], delta=1e-5)

    def test_rank_0_may_know_its_own_name_as_loopback(self):
        """As on Debian and Ubuntu. The ranks know which of them share a host, or do not."""
        files = []
        for host, address in enumerate(("127.0.1.1", self.ADDRESSES[0])):
            files.append(self.folder / f"hosts{host}")
            files[-1].write_text(f"127.0.0.1 localhost\n{address} debian-host\n")
        for port, more in ((29523, {}), (29524, {"LOCAL_WORLD_SIZE": 1, "LOCAL_RANK": 0})):
            runs = [self.ranks_on_host(host, 2, "--max-epochs", "1", "--timeout", "60", port=port, master="debian-host",
                                       hosts_file=files[host], **more) for host in (0, 1)]
            self.assertEqual([run.wait() for run in runs], [0, 0], runs[0].text() + runs[1].text())

    def test_a_rank_with_another_secret_is_refused_at_once(self):
        run = self.on_host(0, "--timeout", "40")
        other = self.on_host(1, "--timeout", "40", LOCKSTEP_SECRET="not-what-the-other-machine-knows")
        self.assertEqual(other.wait(30), 1)
        self.assertEqual(len(other.errors()), 1, other.text())
        self.assertIn("have different secrets (LOCKSTEP_SECRET)", other.errors()[0])
        run.wait_for_text(f"a process at {self.ADDRESSES[1]} with another LOCKSTEP_SECRET was refused")
        run.kill()

    def test_a_name_that_is_not_known_is_told_at_once(self):
        for host in (0, 1):
            for secret in (self.SECRET, ""):
                begin = time.monotonic()
                run = self.on_host(host, "--timeout", "300", MASTER_ADDR="no such host.", LOCKSTEP_SECRET=secret)
                self.assertEqual(run.wait(60), 1)
                self.assertIn("cannot resolve the host 'no such host.'", run.errors()[0])
                self.assertLess(time.monotonic() - begin, 60)

    def test_a_death_is_named_on_the_other_host(self):
        for victim in (3, 2, 1):  # a member, a leader, and the member beside rank 0
            with self.subTest(victim=victim):
                runs = [self.ranks_on_host(host, 2, *ENDLESS, port=29519 + victim) for host in (0, 1)]
                runs[0].wait_for_text(FIRST_EPOCH)
                ranks = [pid for run in runs for pid in self.ranks_of(run)]
                self.assertEqual(len(ranks), 4)
                begin = time.monotonic()
                os.kill(ranks[victim], signal.SIGKILL)
                wait_until(lambda: not any(map(is_running, ranks)), "all ranks are gone", 5)
                # Two seconds for the error, and the time that a rank takes to exit.
                self.assertLess(time.monotonic() - begin, 3)
                self.assertEqual([run.wait(5) for run in runs], [1, 1])
                for run in runs:
                    self.assertTrue(run.errors(), run.text())
                    for error in run.errors():
                        self.assertRegex(error, rf"rank {victim} .*died", run.text())

    def test_they_train_together_over_gloo(self):
        reports = [self.folder / name for name in ("wire.json", "alone.json")]
        # `auto` must choose gloo. A local world size of 1 is only a claim of the environment; that neither rank can
        # open the other's memory proves it.
        runs = [self.on_host(host, "--max-epochs", "2", "--json", reports[0]) for host in (0, 1)]
        self.assertEqual([run.wait() for run in runs], [0, 0], runs[0].text() + runs[1].text())
        alone = self.train("--threads", "1", "--max-epochs", "2", "--json", reports[1], "--backend", "shm",
                           "--nproc-per-node", "2")
        self.assertEqual(alone.wait(), 0, alone.text())
        wire, one_host = (json.loads(report.read_text()) for report in reports)
        self.assertEqual((wire["backend"], one_host["backend"]), ("gloo", "shm"))
        for ours, theirs in zip(wire["epochs"], one_host["epochs"]):
            self.assertAlmostEqual(ours["train_loss"], theirs["train_loss"], delta=1e-5)

    def test_the_store_listens_on_the_wire_alone(self):
        run = self.on_host(0, "--timeout", "20")
        listeners = lambda: subprocess.run(
            ["ip", "netns", "exec", self.hosts[0], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True, text=True).stdout
        address = "".join(f"{int(part):02X}" for part in reversed(self.ADDRESSES[0].split(".")))
        wait_until(lambda: f"{address}:{29517:04X}" in listeners(), "rank 0 listens")
        local = [line.split()[1] for line in listeners().splitlines() if ":" in line and "0A" in line.split()[3:4]]
        self.assertEqual(local, [f"{address}:{29517:04X}"])
        run.kill()

    def test_a_meeting_point_on_the_wire_needs_a_secret(self):
        for host in (0, 1):
            run = self.on_host(host, LOCKSTEP_SECRET="")
            self.assertEqual(run.wait(20), 2)
            self.assertEqual(len(run.errors()), 1, run.text())
            self.assertIn("start all ranks with the same LOCKSTEP_SECRET", run.errors()[0])

    def test_a_host_that_dies_ends_the_other(self):
        runs = [self.on_host(host, *ENDLESS) for host in (0, 1)]
        runs[0].wait_for_text(FIRST_EPOCH)
        runs[1].kill()
        self.assertEqual(runs[0].wait(20), 1)
        self.assertEqual(len(runs[0].errors()), 1, runs[0].text())

    def test_a_cut_link_is_named_long_before_the_timeout(self):
        runs = [self.on_host(host, *ENDLESS, LOCKSTEP_HOST_TIMEOUT="3") for host in (0, 1)]
        runs[0].wait_for_text(FIRST_EPOCH)
        begin = time.monotonic()
        ip("-n", self.hosts[1], "link", "set", self.wires[1], "down")
        self.assertEqual([run.wait(60) for run in runs], [1, 1])
        self.assertLess(time.monotonic() - begin, 30)
        for host, run in enumerate(runs):
            self.assertEqual(len(run.errors()), 1, run.text())
            self.assertIn(f"rank {1 - host} died or is cut off", run.errors()[0])

    def test_a_host_whose_only_loopback_is_of_ipv6_trains(self):
        ip("-n", self.hosts[0], "address", "del", "127.0.0.1/8", "dev", "lo")
        for backend in ("shm", "gloo"):
            run = self.train("--threads", "1", "--nproc-per-node", "2", "--backend", backend, "--max-epochs", "1",
                             prefix=["ip", "netns", "exec", self.hosts[0]])
            self.assertEqual(run.wait(), 0, run.text())

    def test_shared_memory_is_refused_with_the_reason(self):
        runs = [self.on_host(host, "--backend", "shm") for host in (0, 1)]
        self.assertEqual([run.wait(20) for run in runs], [1, 1])
        self.assertIn("needs all ranks on one host", runs[0].text())


if __name__ == "__main__":
    unittest.main()
