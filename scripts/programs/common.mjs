// Helpers of the programs: the server's address, and workers that are killed.
import { spawn } from "node:child_process";

export const host = process.env.REDIS_HOST ?? "127.0.0.1";
export const port = Number(process.env.REDIS_PORT);
export const url = `redis://${host}:${port}`;

// Long enough for anything that will happen on a busy machine.
const LONG = 120_000;

export function expect(what, found, expected) {
  if (found !== expected) {
    console.error(`${what}: expected ${expected}, found ${found}`);
    process.exit(1);
  }
}

export async function until(what, isSo) {
  for (const end = Date.now() + LONG; Date.now() < end; ) {
    if (await isSo()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  expect(what, false, true);
}

// Kills a worker, which is this program with the argument `worker`, when a part of the jobs is done. Returns a second worker.
export async function killedHalfWay(program, done, count) {
  const start = () => spawn(process.execPath, [program, "worker"], { stdio: "inherit" });
  const first = start();
  await until("a part of the jobs was done", async () => (await done()) >= count / 4);
  first.kill("SIGKILL");
  expect("the worker was killed half-way", (await done()) < count, true);
  return start();
}
