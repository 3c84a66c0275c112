"""The faults.  Each begins when client a has the lock and has read, and client b
waits for the lock."""

import threading
import time

from locks import TTL
from sale import PATIENCE

MESSAGE = 0.5                   # seconds, in which a server's message has come


def none(case):
    """a sells, b is next"""
    case.finish_a(case.a.ask("check").startswith("ok"))
    case.fault_at = case.commits[-1]
    case.a_has_ended()


def unlock_first(case):
    """a unlocks before COMMIT, as a framework does that commits around the function"""
    case.a.write()
    case.a.ask("unlock")
    case.let_b_in()
    case.refused = not case.a.commit()
    case.a_has_ended()


def client_paused(case):
    """a is stopped for longer than the session; then its library hears of that, and
    a goes on"""
    case.pause_a()
    case.let_b_in()
    case.resume_a()
    case.finish_a(case.heard())
    case.a_has_ended()


def commit_slow(case):
    """a's COMMIT takes longer than the session"""
    release = case.hold_up_commit()
    case.let_b_in()
    release()
    case.refused = not case.a.committed()
    case.a.unlock(last=True)
    case.a_has_ended()


def commit_paused(case):
    """a is stopped while its COMMIT, which comes after every check, is on the way"""
    release = case.hold_up_commit()
    case.pause_a()
    case.let_b_in()
    release()
    case.resume_a()
    case.refused = not case.a.committed()
    case.a.unlock(last=True)
    case.a_has_ended()


def go_on(case, end_fault):
    """a hears, sells and unlocks; if it cannot while the fault lasts, then after it."""
    going_on = threading.Thread(target=lambda: case.finish_a(case.heard()), daemon=True)
    going_on.start()
    case.a_waited = not case.a_has_decided.wait(PATIENCE + TTL)
    end_fault()
    going_on.join()


def network_cut(case):
    """a is cut off from the servers of the lock, and goes on"""
    network, links = case.rival.world.network, case.rival.links()
    network.cut(links)
    case.let_b_in()
    go_on(case, lambda: network.restore(links))
    case.a_has_ended()


def taken_away(case):
    """somebody ends a's session, deletes its key or kills its connection"""
    case.rival.take_away(case.lock)
    case.let_b_in()
    case.finish_a(case.heard(MESSAGE))
    case.a_has_ended()


def server_killed(case):
    """the server of the lock, the leader if there are several, is killed and starts
    again"""
    server = case.rival.servers().kill_leader()
    server.await_start()
    case.let_b_in()
    case.finish_a(case.heard(MESSAGE))
    case.a_has_ended()


def servers_paused(case):
    """all servers of the lock are stopped for longer than the session; a goes on
    meanwhile"""
    case.rival.servers().pause()
    time.sleep(2 * TTL)             # the length of the fault

    def resume():
        case.fault_at = time.monotonic()
        case.rival.servers().resume()

    go_on(case, resume)
    case.a_has_ended()


def client_killed(case):
    """a is killed"""
    case.kill_a()
    case.a_has_ended()


def machine_lost(case):
    """a's machine is gone, and nobody is told"""
    case.rival.world.network.cut(case.rival.all_links())
    case.kill_a()
    case.a_has_ended()


ALL = {function.__name__.replace("_", "-"): function for function in (
    none, unlock_first, client_paused, commit_slow, commit_paused, network_cut, taken_away,
    server_killed, servers_paused, client_killed, machine_lost)}
