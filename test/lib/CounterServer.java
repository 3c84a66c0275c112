/*
 * A ZooKeeper server whose counters can be set, for ZooKeeper.pm:
 * CounterServer ZOO.CFG PORT
 *
 * The counter of a node is what the next sequential child is numbered by.
 * Whoever connects to PORT on 127.0.0.1 sends lines "NUMBER PATH", each of
 * which is answered by "ok", or by what is wrong.
 */

package org.apache.zookeeper.server;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

public class CounterServer extends ZooKeeperServerMain {
    private final int port;

    private CounterServer(int port) {
        this.port = port;
    }

    private String set(String line) {
        String[] words = line.split(" ", 2);
        DataNode node = getCnxnFactory().getZooKeeperServer().getZKDatabase().getDataTree()
            .getNode(words[1]);

        if (node == null)
            return "no such node: " + words[1];
        synchronized (node) {
            node.stat.setCversion(Integer.parseInt(words[0]));
        }
        return "ok";
    }

    private void listen() {
        try (ServerSocket socket = new ServerSocket(port, 5, InetAddress.getLoopbackAddress())) {
            for (;;) {
                try (Socket client = socket.accept();
                     BufferedReader in = new BufferedReader(
                         new InputStreamReader(client.getInputStream(), "UTF-8"));
                     PrintStream out = new PrintStream(client.getOutputStream(), true, "UTF-8")) {
                    for (String line; (line = in.readLine()) != null;)
                        out.println(set(line));
                }
            }
        } catch (IOException e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    @Override
    protected void serverStarted() {
        Thread listener = new Thread(this::listen);

        listener.setDaemon(true);
        listener.start();
    }

    public static void main(String[] args) {
        try {
            new CounterServer(Integer.parseInt(args[1])).initializeAndRun(new String[] {args[0]});
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
