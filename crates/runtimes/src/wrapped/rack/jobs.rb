
# Background jobs: pushes them to the job server.
module Forkyard
  module Jobs
    # The default timeout of a push in seconds, and how often to push a job whose connection closed before the answer.
    SECONDS = 2
    TRIES = 3
    # How deep a payload may be, as PHP has it, and what is around it.
    DEPTH = 512 + 2
    private_constant :SECONDS, :TRIES, :DEPTH

    # The job was not pushed.
    class PushError < StandardError; end

    # It is unknown whether the job was pushed. Pushing it again with the same `ref` stores it only once.
    class PushUnknown < PushError
      attr_reader :ref

      def initialize(message, ref)
        super(message)
        @ref = ref
      end
    end

    # The connection closed before the answer.
    class Ended < IOError; end
    private_constant :Ended

    # Pushes a job and returns its number. `options`: tenant, priority, in_ms, at_ms, expires_ms, key, ref, serial,
    # steps, attempts, timeout_ms, content_type and traceparent. `push_timeout` is in seconds. Each call opens a
    # connection, so threads and forks may call it.
    def self.push(queue, kind, payload = nil, push_timeout: nil, **options)
      require "socket"
      require "io/wait"
      path = ENV.fetch("FORKYARD_JOBS") { raise PushError, "the daemon's configuration has no [jobs]" }
      seconds = seconds(push_timeout)
      job = options.merge(queue: queue, kind: kind)
      job[:ref] = Random.urandom(16).unpack1("H*") if job[:ref].nil?
      job[:payload] = payload unless payload.nil?
      # The server answers before the time is over.
      request = { command: "push", job: job, timeout_ms: [1, (seconds * 875).to_i].max }
      answer = ask(path, encode(request), job[:ref], now + seconds)
      return answer["jobs"][0]["id"] if answer["result"] == "pushed"

      message = answer["message"] || "the answer is about something else"
      raise answer["is_unknown"] ? PushUnknown.new(message, job[:ref]) : PushError.new(message)
    end

    class << self
      private

      def seconds(own)
        return [ENV["FORKYARD_JOBS_TIMEOUT"].to_i / 1000.0, SECONDS].find(&:positive?) if own.nil?
        raise ArgumentError, "push_timeout is a number of seconds above 0" unless own.positive? && own < 1e6

        own
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def encode(request)
        text = JSON.generate(request, max_nesting: DEPTH)
        check_form(request)
        text
      rescue JSON::JSONError, EncodingError => e
        raise PushError, "the job can't be written as JSON: #{e.message}"
      end

      # Refuses a Proc, an IO and the like: JSON has them as their to_s, which is their class alone.
      def check_form(value)
        case value
        when Hash then value.each_value { |inner| check_form(inner) }
        when Array then value.each { |inner| check_form(inner) }
        else
          is_any = value.method(:to_json).owner == Object.instance_method(:to_json).owner
          return unless is_any && value.to_s.start_with?("#<")

          raise PushError, "the job can't be written as JSON: #{value.class} has no form there"
        end
      end

      # An answer; where the process was replaced that of the next: the job has a name by which it is known again.
      def ask(path, line, ref, till)
        tries, is_sent = 0, false
        begin
          tries += 1
          socket = connect(path, till)
          send_all(socket, "#{line}\n".b, till)
          is_sent = true
          JSON.parse(receive(socket, till))
        rescue Ended, Errno::ECONNRESET, Errno::EPIPE => e
          if tries < TRIES
            socket&.close
            retry
          end
          raise failure(path, e, is_sent, ref)
        rescue SystemCallError, IOError, JSON::ParserError => e
          raise failure(path, e, is_sent, ref)
        ensure
          socket&.close
        end
      end

      def connect(path, till)
        socket = Socket.new(:UNIX, :STREAM)
        begin
          socket.connect_nonblock(Socket.sockaddr_un(path))
        rescue IO::WaitWritable
          # The backlog is full.
          wait(left(till).positive?)
          sleep(0.01)
          retry
        end
        socket
      rescue StandardError
        socket&.close
        raise
      end

      def failure(path, error, is_sent, ref)
        text = "#{path}: #{error.message}"
        is_sent ? PushUnknown.new("#{text}; whether the job is stored is not known", ref) : PushError.new(text)
      end

      def send_all(socket, bytes, till)
        until bytes.empty?
          sent = socket.write_nonblock(bytes, exception: false)
          sent == :wait_writable ? wait(socket.wait_writable(left(till))) : bytes = bytes.byteslice(sent..)
        end
      end

      def receive(socket, till)
        answer = "".b
        until answer.end_with?("\n")
          part = socket.read_nonblock(65_536, exception: false)
          raise Ended, "the connection ended before the answer" if part.nil?

          part == :wait_readable ? wait(socket.wait_readable(left(till))) : answer << part
        end
        answer.force_encoding("UTF-8")
      end

      def left(till)
        [till - now, 0].max
      end

      def wait(ready)
        raise IOError, "timed out" unless ready
      end
    end
  end
end
