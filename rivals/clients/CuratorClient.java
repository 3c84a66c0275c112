/*
 * A client of the sale, whose lock is Curator's InterProcessMutex.
 *
 * Reads a command a line and answers each with a line: see rivals/README.md.  A
 * listener notes when the lock is no longer certain, as Curator's documentation
 * recommends.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorClient {
    /** Tells the path of its node. */
    static class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    private final CuratorFramework client;
    private final Mutex mutex;
    private final Connection database;
    private ConnectionState state = ConnectionState.LOST;
    private boolean lost;

    CuratorClient() throws Exception {
        int timeout = Integer.parseInt(System.getenv("RIVAL_TTL")) * 1000;

        database = DriverManager.getConnection(System.getenv("RIVAL_DATABASE"));
        client = CuratorFrameworkFactory.newClient(System.getenv("RIVAL_SERVERS"), timeout,
            timeout, new ExponentialBackoffRetry(100, 5));
        client.getConnectionStateListenable().addListener((c, state) -> {
            synchronized (this) {
                this.state = state;
                lost |= state == ConnectionState.LOST;
                notifyAll();
            }
        });
        client.start();
        client.blockUntilConnected();
        mutex = new Mutex(client, "/curator/" + System.getenv("RIVAL_LOCK"));
    }

    String lock() throws Exception {
        mutex.acquire();
        synchronized (this) {
            lost = false;
        }
        return "ok " + client.checkExists().forPath(mutex.node()).getCzxid();
    }

    /** While the connection is suspended nothing is certain. */
    synchronized String check() throws InterruptedException {
        while (state == ConnectionState.SUSPENDED) {
            wait();
        }
        return lost || !mutex.isOwnedByCurrentThread() ? "lost" : "ok";
    }

    String unlock() {
        try {
            mutex.release();
            return "ok";
        } catch (Exception e) {
            return "lost " + e;
        }
    }

    /** The first value of the result, or an empty string. */
    String sql(String text) {
        try (Statement statement = database.createStatement()) {
            String value = null;

            if (statement.execute(text)) {
                try (ResultSet rows = statement.getResultSet()) {
                    value = rows.next() ? rows.getString(1) : null;
                }
            }
            return "ok " + (value == null ? "" : value);
        } catch (SQLException e) {
            return "error " + e.getSQLState() + " " + e.getMessage();
        }
    }

    String obey(String command, String argument) throws Exception {
        switch (command) {
            case "lock":
                return lock();
            case "check":
                return check();
            case "unlock":
                return unlock();
            default:
                return sql(argument);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        CuratorClient client = new CuratorClient();

        System.out.println("ok");
        for (String line; (line = in.readLine()) != null;) {
            String[] parts = line.split(" ", 2);

            System.out.println(client.obey(parts[0], parts.length > 1 ? parts[1] : "")
                .split("\n")[0]);
        }
        System.exit(0);
    }
}
