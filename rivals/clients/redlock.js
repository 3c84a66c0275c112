// A client of the sale, whose lock is Redlock's: redlock.js
//
// Reads a command a line and answers each with a line: see rivals/README.md.
// The lock is held by using(), which extends it, with the settings that redlock's
// documentation shows.

import readline from "node:readline";
import Redis from "ioredis";
import Redlock from "redlock";
import pg from "pg";

const { RIVAL_LOCK, RIVAL_SERVERS, RIVAL_DATABASE, RIVAL_TTL } = process.env;

const servers = RIVAL_SERVERS.split(",").map((server) => {
  const [host, port] = server.split(":");
  const client = new Redis({ host, port });
  client.on("error", () => {});
  return client;
});
const redlock = new Redlock(servers);
redlock.on("error", () => {});

const database = new pg.Client({ connectionString: RIVAL_DATABASE });
database.on("error", () => {});

let signal;
let finish; // ends the routine of using()
let released; // what using() returns

const commands = {
  lock: async () => {
    for (;;) {
      const answer = await new Promise((resolve) => {
        released = redlock.using([RIVAL_LOCK], RIVAL_TTL * 1000, (s) => {
          signal = s;
          resolve("ok");
          return new Promise((end) => (finish = end));
        });
        released.catch(resolve); // not had after some attempts
      });
      if (answer === "ok") return answer;
    }
  },

  check: async () => (signal.aborted ? `lost ${signal.error}` : "ok"),

  unlock: () => {
    finish();
    return released.then(() => "ok", (error) => `lost ${error}`);
  },

  sql: async (statement) => {
    const { rows } = await database.query({ text: statement, rowMode: "array" });
    return `ok ${rows.length ? rows[0][0] ?? "" : ""}`;
  },
};

await database.connect();
console.log("ok");
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [, command, argument] = line.match(/^(\w+) ?(.*)$/);
  const answer = await commands[command](argument).catch(
    (error) => `error ${error.code} ${error.message}`);
  console.log(answer.split("\n")[0]);
}
process.exit(0);
