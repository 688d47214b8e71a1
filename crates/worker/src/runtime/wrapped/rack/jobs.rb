
# Background jobs: pushed to the process that keeps them.
module Forkyard
  module Jobs
    # How long the process may take to answer, seconds.
    PATIENCE = 30

    # The job was not pushed, or it is not known whether it was.
    class PushError < StandardError; end

    # Pushes a job; gives its number. `options`: tenant, priority, in_ms, at_ms, expires_ms, key, serial, steps, attempts, timeout_ms,
    # content_type and traceparent. Each call has a connection of its own, so threads and forks may call it.
    def self.push(queue, kind, payload = nil, **options)
      require "socket"
      path = ENV.fetch("FORKYARD_JOBS") { raise PushError, "the daemon's configuration has no [jobs]" }
      job = options.merge(queue: queue, kind: kind)
      job[:payload] = payload unless payload.nil?
      answer = JSON.parse(converse(path, JSON.generate({ command: "push", job: job })))
      return answer["jobs"][0]["id"] if answer["result"] == "pushed"

      raise PushError, answer["message"] || "the answer is about something else"
    rescue SystemCallError, IOError, JSON::ParserError => e
      raise PushError, "#{path}: #{e.message}"
    end

    def self.converse(path, line)
      UNIXSocket.open(path) do |socket|
        socket.write(line, "\n")
        raise IOError, "no answer in #{PATIENCE} s" unless socket.wait_readable(PATIENCE)

        socket.gets || raise(IOError, "the connection ended before the answer")
      end
    end
    private_class_method :converse
  end
end
