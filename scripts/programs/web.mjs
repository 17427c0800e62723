// connect-redis, socket.io's adapter, rate-limiter-flexible and redlock. `server PORT` starts a web server, which is killed.
import { createAdapter } from "@socket.io/redis-adapter";
import { RedisStore } from "connect-redis";
import express from "express";
import session from "express-session";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import IORedis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createClient } from "redis";
import Redlock from "redlock";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { expect, host, port, until, url } from "./common.mjs";

async function serve() {
  const client = await createClient({ url }).connect();
  const app = express();
  app.use(session({ store: new RedisStore({ client }), secret: "s", resave: false, saveUninitialized: false }));
  app.get("/visit", (request, response) => {
    request.session.visits = (request.session.visits ?? 0) + 1;
    response.send(String(request.session.visits));
  });
  const server = createServer(app);
  const sockets = new Server(server, { adapter: createAdapter(client.duplicate(), client.duplicate()) });
  const [publisher, subscriber] = [client.duplicate(), client.duplicate()];
  await Promise.all([publisher.connect(), subscriber.connect()]);
  sockets.adapter(createAdapter(publisher, subscriber));
  sockets.on("connection", (socket) => {
    socket.join("room");
    socket.on("say", (text) => sockets.to("room").emit("said", text));
  });
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

async function start() {
  const child = spawn(process.execPath, [import.meta.filename, "server"], { stdio: ["ignore", "pipe", "inherit"] });
  const line = await new Promise((done) => child.stdout.once("data", (data) => done(String(data))));
  return { child, address: `http://127.0.0.1:${line.trim()}` };
}

async function visit(address, cookie) {
  const response = await fetch(`${address}/visit`, { headers: cookie ? { cookie } : {} });
  return { visits: await response.text(), cookie: response.headers.get("set-cookie")?.split(";")[0] ?? cookie };
}

if (process.argv[2] === "server") {
  await serve();
} else {
  let [one, two] = [await start(), await start()];
  const { cookie } = await visit(one.address);
  expect("visits at another server", (await visit(two.address, cookie)).visits, "2");
  const heard = [];
  const [speaker, listener] = [io(one.address), io(two.address)];
  listener.on("said", (text) => heard.push(text));
  await until("both clients were connected", async () => speaker.connected && listener.connected);
  await until("a message arrived by way of the other server", async () => {
    speaker.emit("say", "hello");
    return heard.includes("hello");
  });
  one.child.kill("SIGKILL");
  expect("visits after a server was killed", (await visit(two.address, cookie)).visits, "3");
  one = await start();
  expect("visits at a new server", (await visit(one.address, cookie)).visits, "4");
  [speaker, listener].forEach((client) => client.close());
  [one, two].forEach(({ child }) => child.kill());

  const client = new IORedis(port, host);
  const limiter = new RateLimiterRedis({ storeClient: client, points: 50, duration: 600 });
  const taken = await Promise.allSettled([...Array(80)].map(() => limiter.consume("user")));
  expect("points of the rate limiter", taken.filter(({ status }) => status === "fulfilled").length, 50);

  const locks = new Redlock([client], { retryCount: 1000, retryDelay: 20 });
  let inside = 0;
  await Promise.all(
    [...Array(20)].map(() =>
      locks.using(["resource"], 60_000, async () => {
        expect("holders of a lock", ++inside, 1);
        await new Promise((done) => setTimeout(done, 5));
        inside--;
      }),
    ),
  );
  process.exit(0);
}
