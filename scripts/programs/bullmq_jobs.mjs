// BullMQ: a worker is killed, and every job is done once it counts as stalled. `worker` starts a worker.
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import { expect, host, killedHalfWay, port, until } from "./common.mjs";

const connection = { host, port };

if (process.argv[2] === "worker") {
  const square = async (job) => {
    await new Promise((done) => setTimeout(done, 50));
    return job.name === "parent" ? Object.values(await job.getChildrenValues()).length : job.data.number ** 2;
  };
  new Worker("numbers", square, { connection, concurrency: 2, lockDuration: 2000, stalledInterval: 1000, maxStalledCount: 5 });
} else {
  const queue = new Queue("numbers", { connection });
  const events = new QueueEvents("numbers", { connection });
  await events.waitUntilReady();
  const jobs = await queue.addBulk(
    [...Array(60).keys()].map((number) => ({ name: "square", data: { number }, opts: { priority: 1 + (number % 3), attempts: 5 } })),
  );
  const done = async () => (await queue.getJobCounts("completed")).completed;
  const second = await killedHalfWay(import.meta.filename, done, jobs.length);
  await until("all jobs were done", async () => (await done()) === jobs.length);
  for (const { id, data } of jobs) {
    expect("a result", (await queue.getJob(id)).returnvalue, data.number ** 2);
  }
  const delayed = await queue.add("square", { number: 7 }, { delay: 200 });
  expect("a delayed job", await delayed.waitUntilFinished(events, 60_000), 49);
  const flow = await new FlowProducer({ connection }).add({
    name: "parent",
    queueName: "numbers",
    children: [1, 2, 3].map((number) => ({ name: "square", queueName: "numbers", data: { number } })),
  });
  expect("the children of a flow", await flow.job.waitUntilFinished(events, 60_000), 3);
  second.kill();
  process.exit(0);
}
