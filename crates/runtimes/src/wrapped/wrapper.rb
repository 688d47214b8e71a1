
module Forkyard
  EXIT_SOFTWARE = 70
  USUAL_FILE = "config.ru"
  SERVER_ERROR = "Status: 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nInternal Server Error\n"
  # Ruby runs handlers between two instructions, and there are none while a worker waits.
  SIGNALS = %w[TERM INT QUIT HUP USR1 USR2].freeze
  # Texts of a report as numbered in forkyard.h, and their longest length.
  SOLUTION = 2
  DETAILS = 3
  MOST_OF_A_REPORT = 16 * 1024
  # Results of forkyard_threads_mind.
  PROMOTES = 1
  WORKS = 2
  # How long before the start timeout a hanging application is reported.
  LAST_SECONDS = 3
  # Ruby's name of this script.
  SCRIPT = "/proc/self/fd/"
  # The descriptor of the work directory, until the library takes it.
  WORK_DIRECTORY = 5
  private_constant :SOLUTION, :DETAILS, :MOST_OF_A_REPORT, :WORK_DIRECTORY
  private_constant :LAST_SECONDS, :PROMOTES, :WORKS, :SCRIPT, :EXIT_SOFTWARE, :USUAL_FILE, :SERVER_ERROR, :SIGNALS

  class << self
    # Whether the application has out-of-band work.
    def works?
      !@out_of_band.empty?
    end

    # Runs the preloader and, after a fork, the worker. Returns the exit code.
    def main
      # Without a locale, Ruby would read all sources and templates as ASCII.
      Encoding.default_external = Encoding::UTF_8 if Encoding.default_external == Encoding::US_ASCII
      $stdout.sync = true
      path = ARGV.shift
      @library = library(path) or return EXIT_SOFTWARE
      @preloader = @library.begin_preloader.call
      return 0 if @preloader.zero?

      reset_signals
      @settings = settings()
      return EXIT_SOFTWARE unless @library.settle.call(@preloader).zero?

      @thread_count = @settings["concurrency"]
      # As in Puma: applications size their database connection pools by it.
      ENV["RAILS_MAX_THREADS"] ||= @thread_count.to_s if @thread_count > 1
      preloads = @settings["preload"] != "never"
      if preloads
        begin
          load_watched
        rescue Exception => error
          fail_to_load(error, @settings)
          return EXIT_SOFTWARE
        end
      end
      attend
      return 0 if preloads && !look_before_fork(path)
      return 0 unless becomes_worker?

      loop do
        code = serve
        return code if code
        break unless becomes_worker?
      end
      # Exit handlers belong to the worker that this process was forked from.
      exit!(0)
    end

    private

    def settings
      text = "\0" * (2 * Fiddle::SIZEOF_VOIDP)
      @library.application.call(@preloader, text)
      address, length = text.unpack("JJ")
      JSON.parse(Fiddle::Pointer.new(address)[0, length].force_encoding(Encoding::UTF_8)).values.first
    end

    # Loads the application. If that takes too long, reports what it is doing; a worker then exits.
    def load_watched(is_worker: false)
      watch = watch(is_worker)
      @application = load(@settings)
      watch.kill.join
    end

    # Checks for connections before the first fork. Returns false if the master is gone. With connections, this process
    # may be re-executed, so that each worker loads the application.
    def look_before_fork(path)
      return false if @library.expect.call(@preloader).zero?

      begin
        prepare_fork
        @is_prepared = true
      rescue Exception => error
        # It is called again for the worker, which is not forked now.
        $stderr.write(report(error))
      end
      @library.renew.call(@preloader, path, path.bytesize)
      warn_of_threads
      true
    end

    # Threads that the standard library or a gem restarts by itself after a fork.
    FORK_SAFE = [:fork_safe, :"\0__detached_thread__"].freeze
    private_constant :FORK_SAFE

    def warn_of_threads
      others = Thread.list.reject do |thread|
        thread == Thread.current || FORK_SAFE.any? { |name| thread.thread_variable_get(name) }
      end
      return if others.empty?

      names = others.map { |thread| thread.name || thread.inspect }
      message = "the application has started threads while it was loaded (#{names.join(", ")}); workers, which are forked from this " \
                "process, do not have them, and a lock that one of them holds then is never released: start them in a block for " \
                "Forkyard.after_fork, or write preload = false"
      @library.warn.call(@preloader, message, message.bytesize)
    end

    # Reports shortly before the start timeout what the application is doing. `ends`: the process then exits.
    def watch(ends)
      limit = @settings["start_timeout"]
      seconds = limit["secs"] + limit["nanos"] / 1e9
      main = Thread.current
      Thread.new do
        # Subtract the time of the interpreter's own start.
        sleep(seconds - [seconds / 3, LAST_SECONDS].min)
        $stderr.write("The application is still being loaded, at:\n#{own(main.backtrace).map { |at| "\tfrom #{at}\n" }.join}")
        exit!(EXIT_SOFTWARE) if ends
      end
    end

    # The application's calls, without this script's.
    def own(backtrace)
      (backtrace || []).reject { |at| at.start_with?(SCRIPT) }
    end

    def load(settings)
      root = settings["root"]
      Dir.chdir(root)
      ENV["RACK_ENV"] ||= "production"
      entry = File.expand_path(settings["entry"] || USUAL_FILE, root)
      unless File.exist?(entry)
        raise LoadError, "#{entry} does not exist; name the application's file: entry = \"FILE.ru\""
      end

      if File.exist?(ENV["BUNDLE_GEMFILE"] ||= File.join(root, "Gemfile"))
        require "bundler"
        Bundler.setup
      else
        ENV.delete("BUNDLE_GEMFILE")
      end
      require "rack"
      # Rack 2 also returns options.
      built = Rack::Builder.parse_file(entry)
      built.is_a?(Array) ? built.first : built
    end

    def library(path)
      Library.new(path)
    rescue Fiddle::DLError, SystemCallError => error
      complain("can't load forkyard's library with Ruby #{RUBY_VERSION}: #{error.message}",
               "Install forkyard anew: its library belongs beside its programs. The interpreter has to be built for this " \
               "machine and its C library, as forkyard is.")
    end

    # Reports a failure without the library, through the work directory of the start.
    def complain(summary, solution)
      $stderr.puts(summary)
      { "summary" => summary, "solution_description.txt" => solution }.each do |name, text|
        File.write("/proc/self/fd/#{WORK_DIRECTORY}/response/error/#{name}", text, mode: "wx")
      rescue SystemCallError
        nil
      end
      nil
    end

    # The error in one line, and its place.
    def fail_to_load(error, settings)
      text = report(error)
      message = text.split(/^\tfrom /, 2).first.strip.gsub(/\s*\n\s*/, "; ")
      # Places inside Ruby itself explain nothing.
      message = message.sub(/\A<internal:[^>]*>:\d+:in [`'][^']*': /, "")
      # The application's place, if a library raised it.
      own = Array(error.backtrace).find { |place| place.start_with?("#{settings["root"]}/") }
      message = "#{message}, from #{own}" if own && !message.start_with?(own)
      { SOLUTION => remedy(error, settings), DETAILS => text }.each do |what, said|
        said = said.byteslice(0, MOST_OF_A_REPORT)
        @library.explain.call(@preloader, what, said, said.bytesize)
      end
      message = message.byteslice(0, MOST_OF_A_REPORT)
      @library.failed.call(@preloader, message, message.bytesize)
    end

    # Reports that workers can be forked.
    def attend
      warm_up
      @library.ready.call(@preloader, RUBY_VERSION, RUBY_VERSION.bytesize)
    end

    # Forks workers. Returns true in each of them, and false in the preloader when the master is gone.
    def becomes_worker?
      while @library.wait.call(@preloader) == 1
        return true if fork_orphan { |pid| @library.forked.call(@preloader, pid) }
      end
      false
    end

    def remedy(error, settings)
      root = settings["root"]
      if defined?(Bundler::BundlerError) && error.is_a?(Bundler::BundlerError)
        "Run \"bundle install\" in #{root} with Ruby #{RUBY_VERSION}, as a user whose gems the pool's user can read."
      elsif error.is_a?(LoadError) && error.path.nil?
        "Check that #{root} is the application's directory, and name its file: entry = \"FILE.ru\"."
      elsif error.is_a?(LoadError)
        "Put the gem that has #{error.path} into the Gemfile and run \"bundle install\" in #{root}, or correct the name."
      elsif error.is_a?(SyntaxError)
        "Correct the line that is named; it may be written for another Ruby than #{RUBY_VERSION}."
      elsif error.is_a?(KeyError) && error.receiver.equal?(ENV)
        "Set #{error.key} in env or env_file: the application reads it from the environment, where it is not set. Variables of a " \
        "login shell are not there."
      else
        "The backtrace says where it happened: correct the application, or give it what it misses there."
      end
    end

    # Prepares memory that all workers will share: collects garbage, compacts the heap and ages the rest, so that minor
    # collections skip it.
    def warm_up
      return Process.warmup if Process.respond_to?(:warmup)

      3.times { GC.start }
      GC.compact if GC.respond_to?(:compact)
    rescue NotImplementedError
      # Not supported with this machine's page size.
    end

    # Forks twice: the intermediate process exits, so that the master inherits the worker. Uses Ruby's own fork, which
    # handles threads, timers and random numbers. Hooks of gems run once, in the new process. Returns true there; here
    # the block receives its pid, or 0.
    def fork_orphan
      prepare_fork unless @is_prepared
      @is_prepared = false
      $stdout.flush
      $stderr.flush
      @forks_itself = true
      reader, writer = IO.pipe
      middle = PLAIN_FORK.call
      if middle.nil? || middle.zero?
        reader.close
        begin
          orphan = Process.fork
        rescue Exception => error
          $stderr.write(report(error))
          exit!(1)
        end
        if orphan
          writer.write(orphan.to_s)
          exit!(0)
        end
        writer.close
        return true
      end
      writer.close
      pid = reader.read.to_i
      reader.close
      # Before the master is notified: by then the new process is its child.
      reap(middle)
      yield pid
      false
    rescue Exception => error
      $stderr.write(report(error))
      yield 0
      false
    ensure
      @forks_itself = false
    end

    # Runs before each fork.
    def prepare_fork
      @before_fork.each(&:call)
      close_connections
    end

    # Active Record's connections: each worker opens its own on demand.
    def close_connections
      return unless defined?(ActiveRecord::Base)

      roles = ActiveRecord.version >= Gem::Version.new("7.1") ? [:all] : []
      ActiveRecord::Base.connection_handler.clear_all_connections!(*roles)
    rescue StandardError => error
      $stderr.write(report(error))
    end

    # A child that the application forks from a worker closes the worker's descriptors: with the listening socket it
    # would keep a stopped pool's address in use.
    def leave_worker
      @library.leave.call unless @forks_itself || @library.nil?
    end

    def reap(pid)
      Process.wait(pid)
    rescue Errno::ECHILD
      # The application has done it already.
    end

    # Runs a worker and returns its exit code, or nil in a copy that becomes a preloader.
    def serve
      reset_signals
      @library.settle_output.call(@preloader)
      return EXIT_SOFTWARE unless @application || loads_in_worker?

      questions = @library.questions.call(@preloader, 0)
      @pid = Process.pid
      return serve_by_threads(questions) if @thread_count > 1

      worker = @library.begin_worker.call(@preloader)
      return EXIT_SOFTWARE if worker.zero?

      @after_fork.each(&:call)
      Telling.begin(questions) unless questions.negative?
      environment = Environment.new(@library)
      loop do
        until (request = @library.next_request.call(worker)).zero?
          exchange = Exchange.new(@library, request)
          answer(exchange, environment.of(request, exchange))
        end
        unless @library.works.call(worker).zero?
          work(worker)
          next
        end
        break if @library.promotes.call(worker).zero?
        return become_preloader(worker) if forks_preloader?(worker)
      end
      @at_stop.each(&:call)
      @library.end_worker.call(worker)
    end

    # Loads the application in this worker only.
    def loads_in_worker?
      load_watched(is_worker: true)
      true
    rescue Exception => error
      $stderr.write(report(error))
      false
    end

    # Serves with several threads.
    def serve_by_threads(questions)
      worker = @library.begin_threads.call(@preloader)
      return EXIT_SOFTWARE if worker.zero?

      @after_fork.each(&:call)
      threads = Threads.new(@library, worker, @thread_count) { |exchange, env| answer(exchange, env, worker) }
      Telling.begin(questions) { |request| threads.running(request) } unless questions.negative?
      while (wish = @library.mind.call(worker)) == WORKS
        work(worker)
      end
      is_stuck = threads.stuck?
      if wish == PROMOTES
        if is_stuck
          why = "a thread is stuck in a request whose time is up"
          @library.refuse.call(worker, why, why.bytesize)
        elsif forks_preloader?(worker)
          return become_preloader(worker)
        end
      end
      @at_stop.each(&:call)
      @library.end_worker.call(worker)
    end

    # Forks the next preloader from this worker, unless its workers would share connections. Returns true in it.
    def forks_preloader?(worker)
      if @settings["preload"] == "auto"
        prepare_fork
        @is_prepared = true
        return false if @library.shares.call(worker) == 1
      end
      fork_orphan { |pid| @library.forked_preloader.call(worker, pid) }
    end

    # Runs out-of-band work; the worker continues even if it fails.
    def work(worker)
      problems = @out_of_band.filter_map do |block|
        block.call
        nil
      rescue Exception => error
        # A fork of the worker by the block is not a worker.
        raise if Process.pid != @pid

        text = report(error)
        $stderr.write(text)
        text.split(/^\tfrom /, 2).first.strip.gsub(/\s*\n\s*/, "; ")
      end
      message = problems.join("; ").byteslice(0, MOST_OF_A_REPORT)
      @library.worked.call(worker, message, message.bytesize)
    end

    # In a copy of a worker, which itself exits.
    def become_preloader(worker)
      Telling.end
      @preloader = @library.promoted.call(worker)
      # The master no longer wants it.
      exit!(0) if @preloader.zero?

      begin
        @after_promotion.each(&:call)
      rescue Exception => error
        $stderr.write(report(error))
        message = "a block for Forkyard.after_promotion failed: #{error.class}: #{error.message.lines.first.to_s.strip}"
        @library.failed.call(@preloader, message, message.bytesize)
        exit!(EXIT_SOFTWARE)
      end
      attend
      nil
    end

    # `worker`: the worker with several threads, if this is one of them.
    def answer(exchange, env, worker = nil)
      status = headers = failure = nil
      begin
        status, headers, body = @application.call(env)
        Answer.new(exchange, env).send(status, headers, body)
      rescue ClientGone => failure
        nil
      rescue Exception => failure
        fail(exchange, failure, worker)
      end
      afterwards(exchange, env, status, headers, failure)
    ensure
      env["rack.input"].discard if env["rack.input"].is_a?(Input)
      exchange.over
    end

    def fail(exchange, error, worker)
      # A fork of the worker by the application must not answer for it.
      raise error if Process.pid != @pid

      is_end = error.is_a?(SystemExit) || error.is_a?(SignalException)
      text = report(error)
      $stderr.write(text)
      exchange.write_error(text)
      exchange.write(SERVER_ERROR) unless exchange.is_begun
    rescue ClientGone
      nil
    ensure
      if is_end
        # The application asked to exit; the answer is sent first.
        exchange.finish
        raise error if worker.nil?

        @library.retire_threads.call(worker)
      end
    end

    # Callbacks after the answer: Rack 3's name and that of other servers.
    def afterwards(exchange, env, status, headers, failure)
      finished, after = env["rack.response_finished"], env["rack.after_reply"]
      return if finished.empty? && after.empty?

      # A job ends with all its work.
      exchange.finish unless env.key?("FORKYARD_JOB_ID")
      (finished.reverse.map { |call| -> { call.call(env, status, headers, failure) } } + after).each do |call|
        call.call
      rescue StandardError => error
        $stderr.write(report(error))
      end
    end

    def report(error)
      return report_of_answer(error) if error.backtrace&.first&.start_with?(SCRIPT)

      text = error.full_message(highlight: false, order: :top)
      text = text.lines.reject { |line| line.start_with?("\tfrom #{SCRIPT}") }.join
      text.end_with?("\n") ? text : "#{text}\n"
    rescue StandardError
      # The message's encoding is incompatible with the backtrace's.
      "#{error.class}: #{error.message.inspect}\n"
    end

    # The application returned something invalid, which this script noticed: the application's own calls, if it is still
    # in one.
    def report_of_answer(error)
      what = "#{error.message.lines.first.to_s.chomp} (#{error.class})"
      at, *others = own(error.backtrace)
      return "#{at}: #{what}\n#{others.map { |call| "\tfrom #{call}\n" }.join}" if at

      "the application's answer is none that Rack allows: #{what}\n"
    end

    def reset_signals
      SIGNALS.each { |name| trap(name, "SYSTEM_DEFAULT") }
    end
  end
end

exit Forkyard.__send__(:main)
