// bee-queue: the jobs of a killed worker are found stalled, and done by another. `worker` starts a worker.
import Queue from "bee-queue";
import { expect, host, killedHalfWay, port, until } from "./common.mjs";

const isWorker = process.argv[2] === "worker";
const queue = new Queue("numbers", { redis: { host, port }, isWorker, stallInterval: 1000, removeOnSuccess: false });

if (isWorker) {
  queue.checkStalledJobs(500);
  queue.process(2, async (job) => {
    await new Promise((done) => setTimeout(done, 50));
    return job.data.number ** 2;
  });
} else {
  const jobs = await Promise.all([...Array(60).keys()].map((number) => queue.createJob({ number }).retries(3).save()));
  const done = async () => (await queue.checkHealth()).succeeded;
  const second = await killedHalfWay(import.meta.filename, done, jobs.length);
  await until("all jobs were done", async () => (await done()) === jobs.length);
  for (const { id } of jobs) {
    expect("a job's status", (await queue.getJob(id)).status, "succeeded");
  }
  second.kill();
  process.exit(0);
}
