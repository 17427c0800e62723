# Sidekiq: a killed worker loses the jobs in progress at most. `sidekiq -r ./sidekiq_jobs.rb` starts a worker.
require "sidekiq"
require "rbconfig"

URL = "redis://#{ENV.fetch("REDIS_HOST", "127.0.0.1")}:#{ENV.fetch("REDIS_PORT")}/6"
Sidekiq.configure_server { |config| config.redis = { url: URL }; config.options[:poll_interval_average] = 1 }
Sidekiq.configure_client { |config| config.redis = { url: URL } }

class Square
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 1 }

  def perform(number)
    sleep 0.05
    # Each of these fails once.
    first = Sidekiq.redis { |redis| redis.setnx("tried:#{number}", 1) }
    raise "again" if number % 10 == 0 && first

    Sidekiq.redis { |redis| redis.hset("results", number, number**2) }
  end
end

if $PROGRAM_NAME == __FILE__
  require "sidekiq/api"

  # Long enough for anything that will happen on a busy machine.
  def wait_until(what)
    (120 * 20).times { return if yield; sleep 0.05 }
    abort "it never happened that #{what}"
  end

  def done
    Sidekiq.redis { |redis| redis.hlen("results") }
  end

  def start
    spawn("sidekiq", "-r", File.expand_path(__FILE__), "-c", "2", out: File::NULL, err: File::NULL)
  end

  count = 60
  Sidekiq::Client.push_bulk("class" => Square, "args" => (0...count - 1).map { |number| [number] })
  Square.perform_in(2, count - 1)
  first = start
  wait_until("a part of the jobs was done") { done >= count / 4 }
  Process.kill(:KILL, first)
  Process.wait(first)
  abort "the worker was too fast to be killed half-way" if done >= count
  second = start
  at_exit { Process.kill(:KILL, second) }
  wait_until("no job was left but those in progress") { done >= count - 2 }
  wait_until("the queues were empty") { [Sidekiq::Queue.new, Sidekiq::RetrySet.new, Sidekiq::ScheduledSet.new].all? { |set| set.size.zero? } }
  results = Sidekiq.redis { |redis| redis.hgetall("results") }
  wrong = results.reject { |number, square| square.to_i == number.to_i**2 }
  abort "wrong results: #{wrong}" unless wrong.empty?
end
