"""Locks of kazoo that share a queue with zklock: see ../from-zookeeper-clients.md."""

from urllib.parse import quote

from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock
from kazoo.retry import ForceRetryError


def lock_path(name, root='/zklock'):
    """The lock directory of zk_lock(name)."""
    return root + '/' + quote(name, safe='-_.~:@=+,')


class CommonLock(Lock):
    """An exclusive lock that Curator's InterProcessMutex, go-zookeeper and
    zklock respect, and that respects them."""
    _NODE_NAME = '-lock-'
    _EXCLUDE_NAMES = ['-lock-', '-__READ__', '-__WRIT__', '__lock__', '__rlock__']

    def _inner_acquire(self, *args, **kwargs):
        # Others make the lock's directory a container, which goes when idle,
        # so that it has to be made again.
        self.assured_path = False
        try:
            return super()._inner_acquire(*args, **kwargs)
        except NoNodeError:
            self.create_tried = False
            raise ForceRetryError()


class CommonWriteLock(CommonLock):
    """A write lock that Curator's InterProcessReadWriteLock and zklock
    respect."""
    _NODE_NAME = '-__WRIT__'


class CommonReadLock(CommonLock):
    """A read lock that they respect."""
    _NODE_NAME = '-__READ__'
    _EXCLUDE_NAMES = ['-lock-', '-__WRIT__', '__lock__']

    def _get_predecessor(self, node):
        # Only writers that came before us count.  ReadLock of kazoo 2.8 waits
        # for later ones too (its issue 649), and they wait for it.
        children = self.client.get_children(self.path)
        if node not in children:
            raise ForceRetryError()
        ahead = [m for m in map(self._contenders_re.search, children)
                 if m and m[1] < node[-10:]]
        return max(ahead, key=lambda m: m[1]).string if ahead else None
