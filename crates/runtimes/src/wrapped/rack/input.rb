
require "stringio"
require "tempfile"

module Forkyard
  # rack.input. Keeps received data in memory, or in a file beyond a size; reads more on demand.
  class Input
    MEMORY_BYTES = 1024 * 1024
    FIRST_LINE_BYTES = 16 * 1024

    def initialize(exchange)
      @exchange = exchange
      @store = StringIO.new("".b)
      @length = 0
      @ended = false
    end

    def read(length = nil, buffer = nil)
      length.nil? ? fetch_all : fetch(length)
      @store.read(length, buffer)
    end

    def gets
      at = @store.pos
      wanted = FIRST_LINE_BYTES
      loop do
        line = @store.gets("\n")
        return line if @ended || line&.end_with?("\n")

        @store.pos = at
        fetch(wanted)
        # Elsewhere, if earlier data was dropped.
        at = @store.pos
        wanted *= 2
      end
    end

    def each
      while (line = gets)
        yield line
      end
    end

    def close
    end

    # After the request. An unnamed file disappears with its descriptor.
    def discard
      @store.close if @store.is_a?(File)
    end

    private

    # Makes this many bytes available, if the body has them.
    def fetch(length)
      take until @ended || @length - @store.pos >= length
    end

    def fetch_all
      take until @ended
    end

    def take
      part = @exchange.read_body
      return @ended = true if part.nil?

      forget_what_was_read
      at = @store.pos
      to_file(at) if @length + part.bytesize > MEMORY_BYTES && @store.is_a?(StringIO)
      @store.seek(0, IO::SEEK_END)
      @store.write(part)
      @store.pos = at
      @length += part.bytesize
    end

    def to_file(at)
      file = Tempfile.create("forkyard-body", binmode: true)
      File.unlink(file.path)
      file.write(@store.string)
      file.pos = at
      @store = file
    end

    def forget_what_was_read
      return unless @length.positive? && @store.pos == @length

      @store.truncate(0)
      @store.pos = 0
      @length = 0
    end
  end

  # rack.input for Rack 2, which can be rewound.
  class RewindableInput < Input
    def rewind
      @store.rewind
      0
    end

    def size
      fetch_all
      @length
    end

    private

    def forget_what_was_read
    end
  end
  private_constant :Input, :RewindableInput
end
