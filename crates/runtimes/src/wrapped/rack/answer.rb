
module Forkyard
  # Sends an application's answer.
  class Answer
    # Connection headers belong to the web server; Status would become the answer's status.
    DROPPED = /\A(?:connection|keep-alive|proxy-authenticate|te|trailer|transfer-encoding|upgrade|status|rack\..*)\z/i
    # Requests out-of-band work: forkyard's name and Passenger's.
    WORK = /\A(?:forkyard|x-passenger|!~)-?request-oob-work\z/i
    ILLEGAL_NAME = /\A\z|[^!#$%&'*+\-.^_`|~0-9A-Za-z]/
    ILLEGAL_VALUE = /[\r\n\0]/
    FILE_BYTES = 256 * 1024
    # Larger bodies are written after the head instead of being joined to it.
    TOGETHER_BYTES = 16 * 1024
    MOST_KINDS = 1000
    # What to do with a header, by name; bounded, because applications may invent names.
    KINDS = Hash.new do |kinds, name|
      kinds.clear if kinds.size >= MOST_KINDS
      kinds[name] =
        if DROPPED.match?(name) then :dropped
        elsif WORK.match?(name) then :work
        elsif ILLEGAL_NAME.match?(name) then :illegal
        elsif name.casecmp?("content-length") then :length
        else :usual
        end
    end
    private_constant :DROPPED, :WORK, :KINDS, :MOST_KINDS, :ILLEGAL_NAME, :ILLEGAL_VALUE, :FILE_BYTES, :TOGETHER_BYTES

    def initialize(exchange, env)
      @exchange = exchange
      @env = env
    end

    def send(status, headers, body)
      status = checked(status)
      @length = @left = nil
      head = head(status, headers)
      if @env["REQUEST_METHOD"] == "HEAD" || status < 200 || status == 204 || status == 304
        @exchange.write(head << "\r\n")
      elsif body.respond_to?(:to_ary) && (parts = body.to_ary)
        send_whole(head, parts)
      elsif (file = file_of(status, body))
        send_file(head, file)
      elsif body.respond_to?(:each)
        send_parts(head, body)
      else
        @exchange.write(head << "\r\n")
        @exchange.flush
        body.call(Stream.new(@exchange, @env["rack.input"]))
      end
    ensure
      body.close if body.respond_to?(:close)
    end

    private

    def checked(status)
      number = status.to_i if status.respond_to?(:to_i)
      return number if number&.between?(100, 999)

      raise ArgumentError, "#{status.inspect} is no status: write a number from 100 to 999"
    end

    def head(status, headers)
      reason = Rack::Utils::HTTP_STATUS_CODES[status]
      head = "Status: #{status} #{reason}\r\n".b
      headers.each do |name, value|
        name = name.to_s
        kind = KINDS[name]
        next if kind == :dropped
        next @exchange.want_work if kind == :work

        values = value.is_a?(Array) ? value : value.to_s
        values = values.include?("\n") ? values.split("\n") : [values] if values.is_a?(String)
        values.each { |single| add(head, name, kind, single.to_s) }
      end
      head
    end

    def add(head, name, kind, value)
      value = value.b unless value.ascii_only?
      if kind == :illegal || ILLEGAL_VALUE.match?(value)
        return @exchange.write_error("header #{name.inspect} was left out: it or its value has an illegal character\n")
      end

      @length = @left = length_of(value) if kind == :length
      head << name << ": " << value << "\r\n"
    end

    def length_of(text)
      return text.to_i if text.strip.match?(/\A\d+\z/)

      raise ArgumentError, "#{text.inspect} is no Content-Length: write the number of bytes in digits"
    end

    # The bytes that Content-Length allows.
    def limited(bytes)
      return bytes unless @left

      @left -= bytes.bytesize
      @left.negative? ? bytes.byteslice(0, [bytes.bytesize + @left, 0].max) : bytes
    end

    # Reports a body that does not end at its Content-Length.
    def tell_difference
      return if @left.nil? || @left.zero?

      what =
        if @left.positive? then "#{@left} bytes shorter than its Content-Length"
        else "longer than its Content-Length by #{-@left} bytes or more, which were not sent"
        end
      Errors.new(@exchange).puts("the body is #{what}")
    end

    def send_whole(head, parts)
      bytes = parts.length == 1 ? parts.first : parts.map(&:b).join
      head << "Content-Length: " << bytes.bytesize.to_s << "\r\n" unless @length
      head << "\r\n"
      if @length && @length != bytes.bytesize
        @exchange.write(head << limited(bytes).b)
        return tell_difference
      end
      return write_last(head << bytes.b) if bytes.bytesize <= TOGETHER_BYTES

      @exchange.write(head)
      write_last(bytes)
    end

    # A job ends with all its work, not with its answer.
    def write_last(bytes)
      @env.key?("FORKYARD_JOB_ID") ? @exchange.write(bytes) : @exchange.write_last(bytes)
    end

    # Sends the body in pieces; the last, if known, with the end of the answer.
    def send_parts(head, body)
      head << "\r\n"
      sent = 0
      body.each do |part|
        next if part.empty?

        allowed = limited(part)
        sent.zero? ? put(head, allowed) : @exchange.write(allowed)
        sent += part.bytesize
        break if @left&.negative?

        @exchange.flush unless @length && sent >= @length
      end
      @exchange.write(head) if sent.zero?
      tell_difference
    end

    def put(head, bytes)
      if bytes.bytesize > TOGETHER_BYTES
        @exchange.write(head)
        @exchange.write(bytes)
      else
        @exchange.write(head << bytes.b)
      end
    end

    # A file that is the whole body.
    def file_of(status, body)
      return unless status == 200 && @length && body.respond_to?(:to_path)

      file = File.open(body.to_path, "rb")
      return file if file.size == @length

      file.close
      nil
    rescue SystemCallError
      nil
    end

    def send_file(head, file)
      @exchange.write(head << "\r\n")
      buffer = "".b
      @exchange.write(buffer) while file.read(FILE_BYTES, buffer)
    ensure
      file.close
    end
  end
  private_constant :Answer
end
