
module Forkyard
  # Builds Rack environments.
  class Environment
    FIRST_BYTES = 32 * 1024
    UNSAFE = %r{[^A-Za-z0-9\-._~!$&'()*+,;=:@/]}n
    DEFAULTS = {
      "REQUEST_METHOD" => "GET", "SERVER_NAME" => "localhost", "SERVER_PORT" => "80", "SERVER_PROTOCOL" => "HTTP/1.1",
      "QUERY_STRING" => ""
    }.freeze
    # Headers with names of their own, or not to be trusted (HTTP_PROXY).
    UNWANTED = %w[HTTP_PROXY HTTP_CONTENT_TYPE HTTP_CONTENT_LENGTH].freeze
    private_constant :FIRST_BYTES, :UNSAFE, :DEFAULTS, :UNWANTED

    def initialize(library, is_threaded = false)
      @library = library
      @room = FIRST_BYTES
      @area = Fiddle::Pointer.malloc(@room, Fiddle::RUBY_FREE)
      is_old = Rack.release < "3"
      @input = is_old ? RewindableInput : Input
      @constants = { "rack.multithread" => is_threaded, "rack.multiprocess" => true, "rack.run_once" => false, "rack.hijack?" => false }
      @constants["rack.version"] = [1, 3].freeze if is_old
      learn("")
    end

    def of(request, exchange)
      names, values = params(request)
      made(names, values, exchange)
    end

    # Builds the environment from packed names and values.
    def made(names, values, exchange)
      learn(names) unless names == @names
      env = @template.dup
      values = values.split("\0", -1)
      index = 0
      count = @keys.length
      while index < count
        key = @keys[index]
        env[key] = values[index] if key
        index += 1
      end
      env.delete("CONTENT_TYPE") if env["CONTENT_TYPE"]&.empty?
      env.delete("CONTENT_LENGTH") if env["CONTENT_LENGTH"]&.empty?
      place(env)
      env["rack.url_scheme"] = secure?(env) ? "https" : "http"
      env["rack.input"] = @input.new(exchange)
      env["rack.errors"] = Errors.new(exchange)
      env["rack.response_finished"] = []
      env["rack.after_reply"] = []
      env
    end

    private

    def params(request)
      length = @library.params_packed.call(request, @area.to_i, @room)
      if length > @room
        @area = Fiddle::Pointer.malloc(@room = length, Fiddle::RUBY_FREE)
        @library.params_packed.call(request, @area.to_i, @room)
      end
      packed = @area[0, length]
      # The first empty name ends the names.
      at = packed.start_with?("\0") ? 0 : packed.index("\0\0") + 1
      [packed.byteslice(0, at), packed.byteslice(at + 1, length)]
    end

    # Web servers send the same names with nearly every request, so their handling is cached.
    def learn(names)
      @names = names
      @keys = names.split("\0").map { |name| -name unless UNWANTED.include?(name) }
      @template = @constants.dup
      @keys.each { |key| @template[key] = nil if key }
      DEFAULTS.each { |name, value| @template[name] = value unless @template.key?(name) }
    end

    def secure?(env)
      https = env["HTTPS"]
      env["REQUEST_SCHEME"] == "https" || (!https.nil? && (https.casecmp?("on") || https == "1"))
    end

    # SCRIPT_NAME is where the application is mounted, PATH_INFO the rest, escaped as the client sent it. A web server
    # without PATH_INFO sends the whole path in SCRIPT_NAME, unescaped.
    def place(env)
      path, mount = env["PATH_INFO"], env["SCRIPT_NAME"] || ""
      path, mount = mount, "" if path.nil? || path.empty?
      mount = mount.chomp("/")
      raw = raw_path(env)
      raw = raw&.delete_prefix(mount) unless mount.empty?
      # If the web server has rewritten or normalised it, its value counts.
      path = raw && (raw == path || unescape(raw) == path) ? raw : escape(path)
      path = "/#{path}" unless path.start_with?("/") || (path.empty? && !mount.empty?)
      env["SCRIPT_NAME"], env["PATH_INFO"] = mount, path
    end

    def raw_path(env)
      uri = env["REQUEST_URI"]
      return if uri.nil? || uri.empty?

      path = uri[0, uri.index("?") || uri.length]
      path.start_with?("/") ? path : path[%r{\A[a-z][a-z0-9+.-]*://[^/]*(/.*)\z}in, 1]
    end

    def escape(path)
      path.gsub(UNSAFE) { |byte| format("%%%02X", byte.ord) }
    end

    def unescape(path)
      path.include?("%") ? path.gsub(/%\h\h/n) { |code| code[1, 2].hex.chr } : path
    end
  end
  private_constant :Environment
end
