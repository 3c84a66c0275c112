"""Lists a lock directory of ZooKeeper as it is now, first in the queue first.

usage: python3 - HOST:PORT DIRECTORY
One line per contender: its name, a tab, its data.  Nothing if there is none.
"""
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

servers, directory = sys.argv[1:3]
client = KazooClient(hosts=servers, read_only=True)
client.start(timeout=10)
try:
    try:
        names = client.get_children(directory)
    except NoNodeError:
        names = []
    for name in sorted(names, key=lambda n: n[-10:]):
        try:
            data = client.get(directory + "/" + name)[0] or b""
        except NoNodeError:         # released while we were reading
            data = b"(gone by now)"
        print(name + "\t" + data.decode("utf-8", "replace"))
finally:
    client.stop()
    client.close()
