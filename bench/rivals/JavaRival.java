/*
 * Curator's InterProcessMutex and ZooKeeper's own WriteLock:
 * JavaRival curator|writelock SERVERS
 *
 * See bench/README.md for the requests.  Each client is a thread.  Curator's
 * share a session (one for each of "instances"); a WriteLock tells its nodes
 * from others' by the session, so each client has one of its own.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

public class JavaRival {
    interface Lock {
        /** False if it was not to be had before that System.nanoTime(). */
        boolean acquire(long end) throws Exception;

        void release() throws Exception;
    }

    /** Where locks come from: one client's, or one session's. */
    interface Source {
        Lock lock(String name) throws Exception;

        void close() throws Exception;
    }

    static final long NEVER = Long.MAX_VALUE;

    static long left(long end) {
        return end == NEVER ? NEVER : Math.max(0, end - System.nanoTime());
    }

    static class Curator implements Source {
        private final CuratorFramework client;

        Curator(String servers) throws Exception {
            client = CuratorFrameworkFactory.newClient(servers, 30000, 15000,
                new ExponentialBackoffRetry(100, 5));
            client.start();
            client.blockUntilConnected();
        }

        public Lock lock(String name) {
            InterProcessMutex mutex = new InterProcessMutex(client, "/curator/" + name);

            return new Lock() {
                public boolean acquire(long end) throws Exception {
                    return mutex.acquire(left(end), TimeUnit.NANOSECONDS);
                }

                public void release() throws Exception {
                    mutex.release();
                }
            };
        }

        public void close() {
            client.close();
        }
    }

    static class Recipe implements Source {
        /*
         * If the node ahead goes between the reading of the queue and the
         * watch, the recipe waits for ever, unless it is made to look again.
         */
        private static final int LOOK_AGAIN_MS = 200;

        private final ZooKeeper client;

        Recipe(String servers) throws Exception {
            CountDownLatch connected = new CountDownLatch(1);

            client = new ZooKeeper(servers, 30000, event -> {
                if (event.getState() == KeeperState.SyncConnected) {
                    connected.countDown();
                }
            });
            connected.await();
        }

        private void makeDirectory(String path) throws Exception {
            try {
                client.create(path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE,
                    CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException e) {
                // another client has made it
            }
        }

        public Lock lock(String name) throws Exception {
            String path = "/writelock/" + name;

            makeDirectory("/writelock");
            makeDirectory(path);
            return new Lock() {
                private WriteLock lock;

                public boolean acquire(long end) throws Exception {
                    Semaphore acquired = new Semaphore(0);

                    lock = new WriteLock(client, path, ZooDefs.Ids.OPEN_ACL_UNSAFE,
                        new LockListener() {
                            public void lockAcquired() {
                                acquired.release();
                            }

                            public void lockReleased() {}
                        });
                    lock.lock();
                    while (!acquired.tryAcquire(LOOK_AGAIN_MS, TimeUnit.MILLISECONDS)) {
                        if (left(end) == 0) {
                            release();
                            return false;
                        }
                        lock.lock();
                    }
                    return true;
                }

                /* If it were not closed, its watch would have it queue again. */
                public void release() {
                    synchronized (lock) {
                        lock.unlock();
                        lock.close();
                    }
                }
            };
        }

        public void close() throws Exception {
            client.close();
        }
    }

    static class Request {
        final String kind;
        final String prefix;
        final int clients;
        final int locks;
        final Map<String, String> words = new HashMap<>();
        final CyclicBarrier start;
        long begin;
        long end;

        Request(String line) {
            String[] parts = line.split(" ");

            kind = parts[0];
            for (int i = 1; i < parts.length; i++) {
                words.put(parts[i].split("=")[0], parts[i].split("=")[1]);
            }
            clients = number("clients", 1);
            locks = number("locks", 1);
            prefix = words.getOrDefault("prefix", "p");
            start = new CyclicBarrier(clients, this::startClock);
        }

        int number(String key, int otherwise) {
            return Integer.parseInt(words.getOrDefault(key, "" + otherwise));
        }

        void startClock() {
            begin = System.nanoTime() + number("warmup", 0) * 1000000L;
            end = begin + number("ms", 0) * 1000000L;
        }
    }

    /** What one client has measured, in nanoseconds. */
    static class Samples {
        private final int client;
        private final List<long[]> all = new ArrayList<>();

        Samples(int client) {
            this.client = client;
        }

        void add(long asked, long acquired, long released) {
            all.add(new long[] {asked, acquired, released});
        }

        void print(PrintStream out) {
            for (long[] s : all) {
                out.println(client + " " + s[0] / 1000 + " " + s[1] / 1000 + " " + s[2] / 1000);
            }
        }
    }

    static Samples cycles(Request r, int client, Source source) throws Exception {
        Samples samples = new Samples(client);
        List<Lock> mine = new ArrayList<>();

        for (int i = client % r.locks; i < r.locks; i += r.clients) {
            mine.add(source.lock(r.prefix + i));
        }
        r.start.await();
        for (int i = 0;; i++) {
            Lock lock = mine.get(i % mine.size());
            long asked = System.nanoTime();

            if (asked >= r.end) {
                return samples;
            }
            if (!lock.acquire(r.end)) {
                return samples;
            }
            long acquired = System.nanoTime();
            lock.release();
            long released = System.nanoTime();
            if (released >= r.begin && released < r.end) {
                samples.add(asked, acquired, released);
            }
            if (r.number("pause", 0) > 0) {
                LockSupport.parkNanos(r.number("pause", 0) * 1000L);
            }
        }
    }

    /** Sells in one of the shops until the stock is gone, or the time is over. */
    static Samples sell(Request r, int client, Source source) throws Exception {
        Samples samples = new Samples(client);
        String[] shops = System.getenv("BENCH_SHOPS").split(",");
        String url = "jdbc:postgresql://127.0.0.1:" + shops[client % shops.length] + "/shop";
        Lock lock = source.lock("lamp");

        try (Connection shop = DriverManager.getConnection(url, "shop",
                 System.getenv("PGPASSWORD"));
             PreparedStatement statement = shop.prepareStatement("CALL sell('lamp')")) {
            r.start.await();
            for (boolean sold = true; sold && System.nanoTime() < r.end;) {
                long asked = System.nanoTime();
                if (!lock.acquire(r.end)) {
                    return samples;
                }
                long acquired = System.nanoTime();
                try (ResultSet row = statement.executeQuery()) {
                    row.next();
                    sold = row.getBoolean(1);
                } finally {
                    lock.release();
                }
                if (sold) {
                    samples.add(asked, acquired, System.nanoTime());
                }
            }
        }
        return samples;
    }

    /*
     * Sessions stay, for the next request: ZooKeeper's client takes 100 ms to
     * close one, and closes them one after the other, from several threads, too.
     */
    static final List<Source> OPEN = new ArrayList<>();

    static List<Samples> runClients(Request r, String kind, String servers) throws Exception {
        int sessions = kind.equals("curator") ? r.number("instances", 1) : r.clients;
        ExecutorService threads = Executors.newCachedThreadPool();

        OPEN.addAll(all(threads, sessions - OPEN.size(), i -> source(kind, servers)));
        List<Samples> results = all(threads, r.clients, i -> {
            Source source = OPEN.get(i % sessions);

            return r.kind.equals("sell") ? sell(r, i, source) : cycles(r, i, source);
        });
        threads.shutdown();
        return results;
    }

    interface Task<T> {
        T run(int number) throws Exception;
    }

    /** What the tasks return, which run at the same time. */
    static <T> List<T> all(ExecutorService threads, int count, Task<T> task) throws Exception {
        List<Future<T>> running = new ArrayList<>();
        List<T> results = new ArrayList<>();

        for (int i = 0; i < count; i++) {
            int number = i;

            running.add(threads.submit(() -> task.run(number)));
        }
        for (Future<T> result : running) {
            results.add(result.get());
        }
        return results;
    }

    /** From a release to the acquire of who waits in another session, back and forth. */
    static List<Samples> relay(Request r, String kind, String servers) throws Exception {
        Samples samples = new Samples(0);
        List<Source> sources = List.of(source(kind, servers), source(kind, servers));
        ExecutorService[] threads = {
            Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor()
        };
        Lock[] locks = {sources.get(0).lock(r.prefix), sources.get(1).lock(r.prefix)};
        int holder = 0;

        threads[0].submit(acquiring(locks[0])).get();
        r.startClock();
        while (System.nanoTime() < r.end) {
            Lock held = locks[holder];
            Future<Long> taken = threads[1 - holder].submit(acquiring(locks[1 - holder]));

            LockSupport.parkNanos(r.number("pause", 0) * 1000L);
            long released = threads[holder].submit(() -> {
                long now = System.nanoTime();
                held.release();
                return now;
            }).get();
            if (released >= r.begin) {
                samples.add(released, taken.get(), taken.get());
            }
            taken.get();
            holder = 1 - holder;
        }
        Lock held = locks[holder];
        threads[holder].submit(() -> {
            held.release();
            return null;
        }).get();
        for (int i = 0; i < 2; i++) {
            threads[i].shutdown();
            sources.get(i).close();
        }
        return List.of(samples);
    }

    static Callable<Long> acquiring(Lock lock) {
        return () -> {
            lock.acquire(NEVER);
            return System.nanoTime();
        };
    }

    static final List<Source> HELD = new ArrayList<>();

    /** Curator's locks belong to the thread that took them, even when it has ended. */
    static List<Samples> hold(Request r, String kind, String servers) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(64);
        Source source = source(kind, servers);
        List<Future<Void>> running = new ArrayList<>();

        HELD.add(source);
        for (int i = 0; i < r.number("count", 0); i++) {
            Lock lock = source.lock(r.prefix + i);

            running.add(threads.submit(() -> {
                lock.acquire(NEVER);
                return null;
            }));
        }
        for (Future<Void> acquired : running) {
            acquired.get();
        }
        threads.shutdown();
        return List.of();
    }

    static List<Samples> drop() throws Exception {
        for (Source source : HELD) {
            source.close();
        }
        HELD.clear();
        return List.of();
    }

    static Source source(String kind, String servers) throws Exception {
        return kind.equals("curator") ? new Curator(servers) : new Recipe(servers);
    }

    static List<Samples> answer(Request r, String kind, String servers) throws Exception {
        switch (r.kind) {
            case "lock":
            case "sell":
                return runClients(r, kind, servers);
            case "relay":
                return relay(r, kind, servers);
            case "hold":
                return hold(r, kind, servers);
            case "drop":
                return drop();
            default:
                throw new IllegalArgumentException("unknown request " + r.kind);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);

        for (String line; (line = in.readLine()) != null;) {
            for (Samples samples : answer(new Request(line), args[0], args[1])) {
                samples.print(out);
            }
            out.println("done");
            out.flush();
        }
        System.exit(0);
    }
}
