/*
 * Curator's recipes, and ZooKeeper's own WriteLock, for Foreign.pm:
 * CuratorClient SERVERS TIMEOUT
 *
 * Reads requests from stdin, one JSON array ["method", argument, ...] a line,
 * and answers each with a line {"result": ...} or {"error": ...}.  The end of
 * input closes the session.
 *
 * A lock is made by ["make", kind, path, {options}], which returns its number.
 * Each has a thread of its own, since Curator's locks belong to threads:
 * ["begin", number, operation, argument, ...] begins an operation there,
 * ["done", number] tells whether it has ended, ["end", number] waits for that
 * and answers what it has returned.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Writer;
import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

public class CuratorClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static CuratorFramework client;

    /** Whatever can be made, and asked for operations in its own thread. */
    abstract static class Actor {
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        private volatile Future<Object> running;

        abstract Object call(String operation, JsonNode arguments) throws Exception;

        void begin(String operation, JsonNode arguments) {
            running = thread.submit(() -> call(operation, arguments));
        }

        Object unknown(String operation) {
            throw new IllegalArgumentException("unknown operation " + operation);
        }
    }

    /** What is acquired and released. */
    abstract static class Lock extends Actor {
        /** null waits for ever. */
        abstract boolean acquire(Double seconds) throws Exception;

        abstract void release() throws Exception;

        abstract Collection<String> participants() throws Exception;

        /** Our own node. */
        abstract String node() throws Exception;

        /** The token, if the quorum says that we hold it still. */
        private long prove() throws Exception {
            client.transaction().forOperations(client.transactionOp().check().forPath(node()));
            return client.checkExists().forPath(node()).getCzxid();
        }

        Object call(String operation, JsonNode arguments) throws Exception {
            switch (operation) {
                case "acquire":
                    JsonNode seconds = arguments.path(0);
                    return acquire(seconds.isNumber() ? seconds.asDouble() : null);
                case "release":
                    release();
                    return null;
                case "participants":
                    return participants();
                case "prove":
                    return prove();
                default:
                    return unknown(operation);
            }
        }
    }

    /** InterProcessMutex, the two halves of InterProcessReadWriteLock, and others. */
    static class Mutex extends Lock {
        private final InterProcessLock mutex;

        Mutex(InterProcessLock mutex) {
            this.mutex = mutex;
        }

        boolean acquire(Double seconds) throws Exception {
            if (seconds != null) {
                return mutex.acquire(milliseconds(seconds), TimeUnit.MILLISECONDS);
            }
            mutex.acquire();
            return true;
        }

        void release() throws Exception {
            mutex.release();
        }

        Collection<String> participants() throws Exception {
            return ((InterProcessMutex) mutex).getParticipantNodes();
        }

        String node() throws Exception {
            Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
            path.setAccessible(true);
            return (String) path.invoke(mutex);
        }
    }

    /** A mutex that is released as soon as somebody asks for it. */
    static class Revocable extends Mutex {
        private volatile boolean revoked;

        Revocable(InterProcessMutex mutex) {
            super(mutex);
            mutex.makeRevocable(m -> {
                revoked = true;
                begin("release", null);
            });
        }

        Object call(String operation, JsonNode arguments) throws Exception {
            return operation.equals("revoked") ? revoked : super.call(operation, arguments);
        }
    }

    /** InterProcessSemaphoreV2; released is the latest lease. */
    static class Permit extends Lock {
        private final InterProcessSemaphoreV2 semaphore;
        private final String path;
        private final Deque<Lease> leases = new ArrayDeque<>();

        Permit(InterProcessSemaphoreV2 semaphore, String path) {
            this.semaphore = semaphore;
            this.path = path;
        }

        boolean acquire(Double seconds) throws Exception {
            Lease lease = seconds == null
                ? semaphore.acquire()
                : semaphore.acquire(milliseconds(seconds), TimeUnit.MILLISECONDS);
            if (lease != null) {
                leases.push(lease);
            }
            return lease != null;
        }

        void release() {
            semaphore.returnLease(leases.pop());
        }

        Collection<String> participants() throws Exception {
            return semaphore.getParticipantNodes();
        }

        String node() {
            return path + "/leases/" + leases.peek().getNodeName();
        }
    }

    /** The recipe that comes with ZooKeeper. */
    static class OwnRecipe extends Lock {
        private final String path;
        private WriteLock lock;

        OwnRecipe(String path) {
            this.path = path;
        }

        boolean acquire(Double seconds) throws Exception {
            Semaphore acquired = new Semaphore(0);

            lock = new WriteLock(client.getZookeeperClient().getZooKeeper(), path,
                ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
                    public void lockAcquired() {
                        acquired.release();
                    }

                    public void lockReleased() {}
                });
            lock.lock();
            if (seconds == null) {
                acquired.acquire();
            } else if (!acquired.tryAcquire(milliseconds(seconds), TimeUnit.MILLISECONDS)) {
                release();
                return false;
            }
            return true;
        }

        /* If it were not closed, its watch would have it queue again. */
        void release() {
            synchronized (lock) {
                lock.unlock();
                lock.close();
            }
        }

        Collection<String> participants() {
            return Collections.singletonList(lock.getId());
        }

        String node() {
            return lock.getId();
        }
    }

    /** LeaderSelector: leads until it is told to step down. */
    static class Leader extends Actor {
        private final LeaderSelector selector;
        private final Semaphore took = new Semaphore(0);
        private final Semaphore stepDown = new Semaphore(0);

        Leader(String path, boolean requeue) {
            selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                public void takeLeadership(CuratorFramework client) throws Exception {
                    took.release();
                    stepDown.acquire();
                }
            });
            selector.setId("curator leader");
            if (requeue) {
                selector.autoRequeue();
            }
        }

        Object call(String operation, JsonNode arguments) throws Exception {
            switch (operation) {
                case "start":
                    selector.start();
                    return null;
                case "requeue":
                    return selector.requeue();
                case "leads":
                    return selector.hasLeadership();
                case "wait":            // until it has become the leader once more
                    took.acquire();
                    return true;
                case "step_down":
                    stepDown.release();
                    return null;
                case "participants":
                    List<String> ids = new ArrayList<>();
                    for (Participant participant : selector.getParticipants()) {
                        ids.add(participant.getId());
                    }
                    return ids;
                case "close":
                    selector.close();
                    return null;
                default:
                    return unknown(operation);
            }
        }
    }

    /**
     * Threads that take a lock, run a query by psql, and release it, until the
     * query answers f: %d in it is the number of the thread.  Returned is how
     * often each has had the lock.
     */
    static class Load extends Actor {
        private final String kind;
        private final String path;
        private final JsonNode options;

        Load(String kind, String path, JsonNode options) {
            this.kind = kind;
            this.path = path;
            this.options = options;
        }

        private int work(int number) throws Exception {
            Lock lock = (Lock) make(kind, path, options);
            List<String> command = new ArrayList<>();
            options.get("psql").forEach(word -> command.add(word.asText()));
            Process psql = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            int sections = 0;

            try (Writer in = psql.outputWriter(); BufferedReader out = psql.inputReader()) {
                String answer = "t";

                while (answer.equals("t")) {
                    lock.acquire(null);
                    try {
                        in.write(options.get("query").asText().replace("%d", "" + number) + ";\n");
                        in.flush();
                        answer = out.readLine();
                        if (answer == null) {
                            throw new IOException("psql has ended");
                        }
                        sections++;
                    } finally {
                        lock.release();
                    }
                }
            }
            psql.waitFor();
            return sections;
        }

        Object call(String operation, JsonNode arguments) throws Exception {
            ExecutorService threads = Executors.newCachedThreadPool();
            List<Future<Integer>> workers = new ArrayList<>();
            List<Integer> sections = new ArrayList<>();

            for (int i = 1; i <= options.get("threads").asInt(); i++) {
                int number = i;
                workers.add(threads.submit(() -> work(number)));
            }
            for (Future<Integer> worker : workers) {
                sections.add(worker.get());
            }
            threads.shutdown();
            return sections;
        }
    }

    static long milliseconds(double seconds) {
        return (long) (seconds * 1000);
    }

    static Actor make(String kind, String path, JsonNode options) throws Exception {
        switch (kind) {
            case "InterProcessMutex":
                return new Mutex(new InterProcessMutex(client, path));
            case "revocable InterProcessMutex":
                return new Revocable(new InterProcessMutex(client, path));
            case "ReadLock":
                return new Mutex(new InterProcessReadWriteLock(client, path).readLock());
            case "WriteLock":
                return new Mutex(new InterProcessReadWriteLock(client, path).writeLock());
            case "InterProcessSemaphoreMutex":
                return new Mutex(new InterProcessSemaphoreMutex(client, path));
            case "InterProcessSemaphoreV2":
                return new Permit(new InterProcessSemaphoreV2(client, path,
                    options.get("permits").asInt()), path);
            case "LeaderSelector":
                return new Leader(path, options.path("requeue").asBoolean());
            case "ZooKeeper's WriteLock":
                return new OwnRecipe(path);
            default:
                throw new IllegalArgumentException("unknown kind " + kind);
        }
    }

    static final List<Actor> ACTORS = new ArrayList<>();

    static Object answer(JsonNode request) throws Exception {
        String method = request.get(0).asText();

        switch (method) {
            case "session":
                return client.getZookeeperClient().getZooKeeper().getSessionId();
            case "revoke":
                Revoker.attemptRevoke(client, request.get(1).asText());
                return null;
            case "make":
            case "load":
                String kind = request.get(1).asText();
                String path = request.get(2).asText();
                JsonNode options = request.path(3);
                ACTORS.add(method.equals("load") ? new Load(kind, path, options)
                    : make(kind, path, options));
                return ACTORS.size() - 1;
            default:
        }

        Actor actor = ACTORS.get(request.get(1).asInt());
        switch (method) {
            case "begin":
                List<JsonNode> arguments = new ArrayList<>();
                request.forEach(arguments::add);
                actor.begin(request.get(2).asText(),
                    JSON.valueToTree(arguments.subList(3, arguments.size())));
                return null;
            case "done":
                return actor.running.isDone();
            case "end":
                try {
                    return actor.running.get();
                } catch (ExecutionException e) {
                    throw (Exception) e.getCause();
                }
            default:
                throw new IllegalArgumentException("unknown method " + method);
        }
    }

    public static void main(String[] args) throws Exception {
        client = CuratorFrameworkFactory.newClient(args[0],
            (int) milliseconds(Double.parseDouble(args[1])), 15000,
            new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = System.out;
        String line;

        while ((line = in.readLine()) != null) {
            String key = "result";
            Object value;
            try {
                value = answer(JSON.readTree(line));
            } catch (Exception e) {
                key = "error";
                value = e.getClass().getSimpleName() + " " + e.getMessage();
            }
            out.println(JSON.writeValueAsString(Collections.singletonMap(key, value)));
            out.flush();
        }
        client.close();
        System.exit(0);
    }
}
