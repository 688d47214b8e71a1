
module Forkyard
  # Reports what this worker is doing, for the log of slow requests. A separate thread answers, so nothing in the
  # application is interrupted by a signal.
  module Telling
    MOST_CALLS = 200
    MOST_BYTES = 128 * 1024
    private_constant :MOST_CALLS, :MOST_BYTES

    # The descriptor of the socket for questions. The block returns the serving threads, first the one with this
    # request; without a block it is this thread alone.
    def self.begin(descriptor, &serving)
      @socket = socket = IO.for_fd(descriptor, "r+b")
      socket.sync = true
      own = Thread.current
      thread = Thread.new do
        loop do
          shown = socket.readpartial(64).to_i
          socket.write_nonblock("#{serving ? tell_all(serving.call(shown)) : tell(own)}\0", exception: false)
        end
      rescue IOError, SystemCallError
        # The master is gone.
        nil
      end
      thread.name = "forkyard"
      thread.report_on_exception = false
    end

    # Stops answering in a copy of the worker, which lacks the thread.
    def self.end
      @socket&.close
      @socket = nil
    end

    def self.tell(thread)
      calls = thread.backtrace_locations(0, MOST_CALLS) || []
      lines = calls.map { |call| "  File \"#{call.path}\", line #{call.lineno} in #{call.label}".b.tr("\n\0", "??") }
      "#{lines.join("\n")}\n".byteslice(0, MOST_BYTES)
    end
    def self.tell_all(threads)
      threads.map { |thread| "Task #{thread.name}\n#{tell(thread)}" }.join.byteslice(0, MOST_BYTES)
    end
    private_class_method :tell, :tell_all
  end
  private_constant :Telling
end
