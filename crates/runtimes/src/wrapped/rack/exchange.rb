
module Forkyard
  # The client has disconnected.
  class ClientGone < IOError
  end

  # One request and its answer, on top of the library. A thread that still uses it after its end gets an error, because
  # its data would belong to another request.
  class Exchange
    READ_BYTES = 64 * 1024
    MOST_ERROR_BYTES = 1024 * 1024
    AREA = Fiddle::Pointer.malloc(READ_BYTES, Fiddle::RUBY_FREE)
    private_constant :AREA, :READ_BYTES, :MOST_ERROR_BYTES

    attr_reader :is_begun

    def initialize(library, request)
      @library = library
      @request = request
      @lock = Mutex.new
      @is_begun = false
      @errors = nil
    end

    def inspect
      "#<Forkyard::Exchange>"
    end

    # Reads from the body; nil at its end.
    def read_body
      @lock.synchronize { read_piece(open) }
    end

    # The first piece contains the whole head.
    def write(bytes)
      @lock.synchronize do
        handle = open
        @is_begun = true
        send_piece(handle, bytes)
        send_errors(handle) if @errors
      end
    end

    # This piece ends the answer.
    def write_last(bytes)
      write(bytes)
    end

    def flush
      @lock.synchronize { send_all(open) }
    end

    # Text for the web server's error log, sent after the head: nginx keeps both in one buffer and fails when it is
    # full.
    def write_error(text)
      @lock.synchronize do
        handle = open
        if @is_begun
          send_error(handle, text)
        else
          @errors ||= "".b
          @errors << text.b if @errors.bytesize + text.bytesize <= MOST_ERROR_BYTES
        end
      end
    end

    # Ends the answer; the worker continues with later work.
    def finish
      @lock.synchronize { end_answer(open) }
    end

    # Requests out-of-band work, if the application has defined any.
    def want_work
      @lock.synchronize { ask_for_work(open) } if Forkyard.works?
    end

    def over
      @lock.synchronize { @request = nil }
    end

    private

    def open
      @request or raise IOError, "the request is over"
    end

    def gone
      raise ClientGone, "the client is gone"
    end

    def send_errors(handle)
      send_error(handle, @errors)
      @errors = nil
    end

    def read_piece(handle)
      count = @library.read_body.call(handle, AREA, READ_BYTES)
      raise ClientGone, "the client is gone, or silent for too long" if count.negative?

      count.zero? ? nil : AREA[0, count]
    end

    def send_piece(handle, bytes)
      gone if @library.write.call(handle, bytes, bytes.bytesize).negative?
    end

    def send_all(handle)
      gone if @library.flush.call(handle).negative?
    end

    def send_error(handle, text)
      @library.write_error.call(handle, text, text.bytesize)
    end

    def end_answer(handle)
      @library.finish.call(handle)
    end

    def ask_for_work(handle)
      @library.want_work.call(handle)
    end
  end

  # rack.errors: the web server's error log, and standard error, as in other servers.
  class Errors
    def initialize(exchange)
      @exchange = exchange
    end

    def write(*texts)
      texts.sum do |text|
        bytes = text.to_s
        unless bytes.empty?
          @exchange.write_error(bytes)
          $stderr.write(bytes)
        end
        bytes.bytesize
      end
    end

    def <<(text)
      write(text)
      self
    end

    def print(*texts)
      write(*texts)
      nil
    end

    def puts(*texts)
      texts = [""] if texts.empty?
      texts.flatten.each do |text|
        line = text.to_s
        write(line.end_with?("\n") ? line : "#{line}\n")
      end
      nil
    end

    def printf(format, *values)
      write(Kernel.format(format, *values))
      nil
    end

    # Sent with the answer.
    def flush
      self
    end

    # Applications may not close it, but Logger treats an object without this method as a file name.
    def close
    end

    def closed?
      false
    end

    def sync
      true
    end

    def sync=(_)
    end

    def isatty
      false
    end
    alias tty? isatty
  end

  # The stream of a Rack 3 streaming body.
  class Stream
    def initialize(exchange, input)
      @exchange = exchange
      @input = input
      @is_closed = false
    end

    def read(length = nil, buffer = nil)
      @input.read(length, buffer)
    end

    def write(bytes)
      raise IOError, "closed stream" if @is_closed

      @exchange.write(bytes) unless bytes.empty?
      @exchange.flush
      bytes.bytesize
    end

    def <<(bytes)
      write(bytes)
      self
    end

    def flush
      self
    end

    def close_read
    end

    def close_write
      @is_closed = true
    end

    def close(_error = nil)
      @is_closed = true
    end

    def closed?
      @is_closed
    end
  end
  private_constant :Exchange, :Errors, :Stream
end
