
module Forkyard
  # A request and its answer, with several serving threads.
  class ThreadExchange < Exchange
    NOW = 0
    LAST = 1
    LATER = 2
    IS_FULL = 1 << 62
    private_constant :NOW, :LAST, :LATER, :IS_FULL

    # `begin`: the body so far. `is_whole`: it is complete.
    def initialize(library, worker, request, begin_of_body, is_whole)
      super(library, request)
      @worker = worker
      @begin = begin_of_body
      @is_whole = is_whole
      @is_ended = false
      @pid = Process.pid
    end

    def write_last(bytes)
      return super if @errors

      @lock.synchronize do
        handle = open
        @is_begun = @is_ended = true
        put(handle, bytes, LAST)
      end
    end

    # Ends the request for all users. A fork of the application must not end it.
    def over
      finish unless @is_ended || Process.pid != @pid
      super
    end

    private

    def read_piece(handle)
      unless @begin.empty?
        piece, @begin = @begin, ""
        return piece
      end
      return if @is_whole

      text = "\0" * (2 * Fiddle::SIZEOF_VOIDP)
      found = @library.read_by_thread.call(@worker, handle, text)
      raise ClientGone, "the client is gone, or silent for too long" if found.negative?

      @is_whole = found.zero?
      address, length = text.unpack("JJ")
      length.zero? ? read_piece(handle) : Fiddle::Pointer.new(address)[0, length]
    end

    def send_piece(handle, bytes)
      put(handle, bytes, LATER)
    end

    def send_all(handle)
      put(handle, "", NOW)
    end

    def put(handle, bytes, flag)
      at = 0
      size = bytes.bytesize
      loop do
        taken = @library.send_by_thread.call(@worker, handle, bytes, at, size, flag)
        gone if taken.negative?
        return if (taken & IS_FULL).zero?

        at += taken & ~IS_FULL
        gone if @library.wait_by_thread.call(@worker, handle).negative?
        return if at == size && flag != LAST
      end
    end

    def send_error(handle, text)
      until text.empty?
        taken = @library.send_error_by_thread.call(@worker, handle, text, text.bytesize)
        return if taken.negative?

        text = text.byteslice((taken & ~IS_FULL)..)
        return if (taken & IS_FULL).positive? && @library.wait_by_thread.call(@worker, handle).negative?
      end
    end

    def end_answer(handle)
      @is_ended = true
      put(handle, "", LAST)
    rescue ClientGone
      nil
    end

    def ask_for_work(_handle)
      @library.want_work_of_threads.call(@worker)
    end
  end

  # The threads of a worker, each with one request at a time.
  class Threads
    # The head of a record; see forkyard.h.
    HEAD = "LLQLLL"
    HEAD_BYTES = 28
    # How long idle threads may take to end.
    END_SECONDS = 1
    private_constant :HEAD, :HEAD_BYTES, :END_SECONDS

    # The block answers a request; its arguments are an exchange and the environment.
    def initialize(library, worker, count, &answer)
      @library = library
      @worker = worker
      @answer = answer
      # The request of each thread, oldest first.
      @running = {}
      @lock = Mutex.new
      @threads = (1..count).map do |number|
        thread = Thread.new { run }
        thread.name = "forkyard-#{number}"
        thread.report_on_exception = false
        thread
      end
    end

    # The threads with a request, first the one with this request.
    def running(shown)
      threads = @lock.synchronize { @running.to_a }
      first, others = threads.partition { |_, request| request == shown }
      (first + others).map(&:first)
    end

    # Waits for their end. Returns whether one is stuck in a request that timed out.
    def stuck?
      limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + END_SECONDS
      @threads.each { |thread| thread.join([limit - Process.clock_gettime(Process::CLOCK_MONOTONIC), 0].max) }
      @threads.any?(&:alive?)
    end

    private

    def run
      pid = Process.pid
      environment = Environment.new(@library, true)
      text = "\0" * (2 * Fiddle::SIZEOF_VOIDP)
      while @library.next_of_thread.call(@worker, text) == 1
        address, length = text.unpack("JJ")
        take(Fiddle::Pointer.new(address)[0, length], environment)
      end
    rescue Exception => error
      # A fork of the application is not a worker and may end freely.
      raise if Process.pid != pid

      # A worker must not continue with a missing thread.
      $stderr.write(error.full_message(highlight: false))
      exit!(EXIT_SOFTWARE)
    end

    def take(record, environment)
      _, _, request, names, values, is_whole = record.unpack(HEAD)
      @lock.synchronize { @running[Thread.current] = request }
      at = HEAD_BYTES + names
      body = record.byteslice(at + values, record.bytesize)
      exchange = ThreadExchange.new(@library, @worker, request, body, is_whole == 1)
      env = environment.made(record.byteslice(HEAD_BYTES, names), record.byteslice(at, values), exchange)
      @answer.call(exchange, env)
    ensure
      @lock.synchronize { @running.delete(Thread.current) }
    end
  end
  private_constant :ThreadExchange, :Threads
end
