# frozen_string_literal: true

# Loads a Rack application and forks workers from this process.
#
# forkyard passes its library as the first argument; its C functions (forkyard.h) talk to the master and serve requests.
# The files of this directory are one script, in the order library, jobs, input, exchange, environment, answer, telling,
# threads, then ../wrapper.rb.

require "fiddle"
require "json"

# The interface for applications.
module Forkyard
  # The original fork, before gems patch it; for the intermediate process of a double fork.
  PLAIN_FORK = Process.respond_to?(:_fork) ? Process.method(:_fork) : Process.method(:fork)

  # All forks of a Ruby with this method use it, except those of IO.popen and system, which execute a program.
  module Forks
    def _fork
      pid = super
      Forkyard.__send__(:leave_worker) if pid.zero?
      pid
    end
  end
  Process.singleton_class.prepend(Forks) if Process.respond_to?(:_fork)

  @before_fork = []
  @after_fork = []
  @at_stop = []
  @after_promotion = []
  @out_of_band = []

  class << self
    # Runs the block in the preloader before each fork, and in a worker before the next preloader is forked from it.
    def before_fork(&block)
      @before_fork << block
    end

    # Runs the block in each worker before its first request.
    def after_fork(&block)
      @after_fork << block
    end

    # Runs the block in a preloader that was forked from a worker, before it forks workers.
    def after_promotion(&block)
      @after_promotion << block
    end

    # Runs the block in a worker between two requests, some time after an answer with the header
    # Forkyard-Request-OOB-Work, while no client waits.
    def out_of_band(&block)
      @out_of_band << block
    end

    # Runs the block in each worker after its last request.
    def at_stop(&block)
      @at_stop << block
    end
  end

  # The C functions with types. Handles are numbers, which are cheaper than Fiddle's pointers.
  class Library
    POINTER = Fiddle::TYPE_VOIDP
    NUMBER = Fiddle::TYPE_SIZE_T
    COUNT = Fiddle::TYPE_SSIZE_T
    INT = Fiddle::TYPE_INT
    VOID = Fiddle::TYPE_VOID
    # The current request of a thread.
    REQUEST = -Fiddle::TYPE_LONG_LONG

    # Positions in struct forkyard_api, in pointers.
    TABLE = { read_body: 4, write: 5, write_error: 6, flush: 7, finish: 8, want_work: 19 }.freeze

    attr_reader :begin_preloader, :application, :settle, :ready, :explain, :failed, :expect, :renew, :warn, :leave, :shares, :wait, :forked, :begin_worker,
                :next_request, :end_worker, :promotes, :forked_preloader, :promoted, :works, :worked, :settle_output, :questions,
                :params_packed, :refuse,
                :begin_threads, :mind, :next_of_thread, :read_by_thread, :send_by_thread, :wait_by_thread,
                :send_error_by_thread, :retire_threads, :want_work_of_threads,
                :read_body, :write, :write_error, :flush, :finish, :want_work

    def initialize(path)
      @handle = Fiddle.dlopen(path)
      @begin_preloader = function("forkyard_preloader_begin", [], NUMBER)
      @application = function("forkyard_preloader_application_text", [NUMBER, POINTER], VOID)
      @settle = function("forkyard_preloader_settle", [NUMBER], INT)
      @ready = function("forkyard_preloader_ready", [NUMBER, POINTER, NUMBER], VOID)
      @explain = function("forkyard_preloader_explain", [NUMBER, INT, POINTER, NUMBER], VOID)
      @failed = function("forkyard_preloader_failed", [NUMBER, POINTER, NUMBER], VOID)
      @forked = function("forkyard_preloader_forked", [NUMBER, INT], VOID)
      @begin_worker = function("forkyard_worker_begin", [NUMBER], NUMBER)
      @end_worker = function("forkyard_worker_end", [NUMBER], INT)
      @promotes = function("forkyard_worker_promotes", [NUMBER], INT)
      @forked_preloader = function("forkyard_worker_forked", [NUMBER, INT], VOID)
      @promoted = function("forkyard_worker_promoted", [NUMBER], NUMBER)
      @works = function("forkyard_worker_works", [NUMBER], INT)
      @worked = function("forkyard_worker_worked", [NUMBER, POINTER, NUMBER], VOID)
      @settle_output = function("forkyard_worker_settle_output", [NUMBER], VOID)
      @questions = function("forkyard_worker_questions", [NUMBER, INT], INT)
      @params_packed = function("forkyard_request_params_packed", [NUMBER, NUMBER, NUMBER], NUMBER)
      @refuse = function("forkyard_worker_refuse", [NUMBER, POINTER, NUMBER], VOID)
      @begin_threads = function("forkyard_threads_begin", [NUMBER], NUMBER)
      @send_by_thread =
        function("forkyard_threads_send", [NUMBER, REQUEST, POINTER, NUMBER, NUMBER, INT], Fiddle::TYPE_LONG_LONG)
      @send_error_by_thread =
        function("forkyard_threads_send_error", [NUMBER, REQUEST, POINTER, NUMBER], Fiddle::TYPE_LONG_LONG)
      @retire_threads = function("forkyard_threads_retire", [NUMBER], VOID)
      @want_work_of_threads = function("forkyard_threads_want_work", [NUMBER], VOID)
      # These release the GVL while they wait.
      @mind = function("forkyard_threads_mind", [NUMBER], INT, waits: true)
      @next_of_thread = function("forkyard_threads_next", [NUMBER, POINTER], INT, waits: true)
      @read_by_thread = function("forkyard_threads_read", [NUMBER, REQUEST, POINTER], INT, waits: true)
      @wait_by_thread = function("forkyard_threads_wait", [NUMBER, REQUEST], INT, waits: true)
      @renew = function("forkyard_preloader_renew", [NUMBER, POINTER, NUMBER], VOID)
      @warn = function("forkyard_preloader_warn", [NUMBER, POINTER, NUMBER], VOID)
      @shares = function("forkyard_worker_shares", [NUMBER], INT)
      @leave = function("forkyard_worker_leave", [], VOID)
      @expect = function("forkyard_preloader_expect", [NUMBER], INT, waits: true)
      @wait = function("forkyard_preloader_wait", [NUMBER], INT, waits: true)
      @next_request = function("forkyard_worker_next", [NUMBER], NUMBER, waits: true)
      table = Fiddle::Pointer.new(function("forkyard_api_v1", [], NUMBER).call)
      @addresses = table[0, 20 * Fiddle::SIZEOF_VOIDP].unpack("J*")
      @read_body = entry(:read_body, [NUMBER, POINTER, NUMBER], COUNT)
      @write = entry(:write, [NUMBER, POINTER, NUMBER], COUNT)
      @write_error = entry(:write_error, [NUMBER, POINTER, NUMBER], COUNT)
      @flush = entry(:flush, [NUMBER], INT)
      @finish = entry(:finish, [NUMBER], INT)
      @want_work = entry(:want_work, [NUMBER], VOID)
    end

    private

    def function(name, arguments, result, waits: false)
      Fiddle::Function.new(@handle[name], arguments, result, name: name, need_gvl: !waits)
    end

    def entry(name, arguments, result)
      Fiddle::Function.new(@addresses[TABLE[name]], arguments, result, name: name.to_s, need_gvl: false)
    end
  end
  private_constant :PLAIN_FORK, :Forks, :Library
end

# Passenger's interface.
module PhusionPassenger
  def self.on_event(name, &block)
    case name
    when :starting_worker_process then Forkyard.after_fork { block.call(true) }
    when :stopping_worker_process then Forkyard.at_stop(&block)
    when :oob_work then Forkyard.out_of_band(&block)
    end
  end
end
