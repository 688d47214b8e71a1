//! Configuration keys as written. A test compares them with the settings table.

use super::application::Interface;
use super::error::Location;
use super::flat_keys::{Entries, Field, FlatKeys};
use super::report::Report;
use super::units::{
    Bounds, Children, ConnectionsChoice, Core, Counts, ErrorRule, Facility, FileMode, Flag, Format,
    Handshake, IniValue, IsolationChoice, Level, Manager, PreloadRule, PreloaderChoice, Reload, RequestRule,
    Routing, Size, TermRule, Text, Texts, Time, Whole, WorkerModeChoice,
};

/// Defines a struct, its list of keys and its reader.
macro_rules! draft {
    (
        $(#[$doc:meta])* $name:ident {
            keys { $( $field:ident: $type:ty = $key:literal, )* }
            tables { $( $entries:ident: $entry:ty = $table:literal, )* }
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            $( pub(super) $field: Field<$type>, )*
            $( pub(super) $entries: Entries<$entry>, )*
        }

        impl $name {
            pub(super) const KEYS: &[&str] = &[$($key,)* $($table,)*];

            pub(super) fn read(flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> $name {
                $name {
                    $( $field: flat_keys.take($key, report), )*
                    $( $entries: flat_keys.take_entries($table, report), )*
                }
            }
        }
    };
}

draft! {
    GlobalDraft {
        keys {
            pid: Text = "pid",
            error_log: Text = "error_log",
            log_level: Level = "log_level",
            log_format: Format = "log_format",
            log_limit: Whole = "log_limit",
            syslog_ident: Text = "syslog.ident",
            syslog_facility: Facility = "syslog.facility",
            systemd_interval: Time = "systemd_interval",
            process_control_timeout: Time = "process_control_timeout",
            process_max: Whole = "process.max",
            emergency_restart_threshold: Whole = "emergency_restart_threshold",
            emergency_restart_interval: Time = "emergency_restart_interval",
            process_priority: Whole = "process.priority",
            daemonize: Flag = "daemonize",
            rlimit_files: Whole = "rlimit_files",
            rlimit_core: Core = "rlimit_core",
            allow_root: Flag = "allow_root",
            on_error: ErrorRule = "on_error",
            include: Texts = "include",
            watch: Flag = "watch",
            control: Text = "control",
            on_sigterm: TermRule = "on_sigterm",
        }
        tables {}
    }
}

draft! {
    PoolDraft {
        keys {
            listen: Text = "listen",
            listen_address: Text = "listen.address",
            listen_backlog: Whole = "listen.backlog",
            listen_owner: Text = "listen.owner",
            listen_group: Text = "listen.group",
            listen_mode: FileMode = "listen.mode",
            listen_allowed_clients: Texts = "listen.allowed_clients",
            listen_acl_users: Texts = "listen.acl_users",
            listen_acl_groups: Texts = "listen.acl_groups",
            user: Text = "user",
            group: Text = "group",
            pm: Manager = "pm",
            max_children: Children = "max_children",
            start_servers: Whole = "start_servers",
            min_spare_servers: Whole = "min_spare_servers",
            max_spare_servers: Whole = "max_spare_servers",
            max_spawn_rate: Whole = "max_spawn_rate",
            process_idle_timeout: Time = "process_idle_timeout",
            max_requests: Whole = "max_requests",
            max_requests_jitter: Whole = "max_requests_jitter",
            memory_limit: Size = "memory_limit",
            request_terminate_timeout: Time = "request_terminate_timeout",
            request_terminate_timeout_track_finished: Flag = "request_terminate_timeout_track_finished",
            stop_timeout: Time = "stop_timeout",
            slowlog: Text = "slowlog",
            request_slowlog_timeout: Time = "request_slowlog_timeout",
            request_slowlog_trace_depth: Whole = "request_slowlog_trace_depth",
            client_timeout: Time = "client_timeout",
            push_timeout: Time = "push_timeout",
            keepalive_timeout: Time = "keepalive_timeout",
            wait_for_cpu: Flag = "wait_for_cpu",
            params_bytes: Size = "limits.params_bytes",
            params_count: Whole = "limits.params_count",
            status_path: Text = "status_path",
            status_listen: Text = "status_listen",
            http_listen: Text = "http_listen",
            ping_path: Text = "ping.path",
            ping_response: Text = "ping.response",
            chdir: Text = "chdir",
            chroot: Text = "chroot",
            clear_env: Flag = "clear_env",
            rlimit_files: Whole = "rlimit_files",
            rlimit_core: Core = "rlimit_core",
            process_priority: Whole = "process.priority",
            process_dumpable: Flag = "process.dumpable",
            no_new_privs: Flag = "no_new_privs",
            apparmor_hat: Text = "apparmor_hat",
            confine_read: Texts = "confine.read",
            confine_write: Texts = "confine.write",
            confine_deny_system_calls: Flag = "confine.deny_system_calls",
            confine_private_tmp: Flag = "confine.private_tmp",
            cpu_weight: Whole = "cpu_weight",
            memory_max: Size = "memory_max",
            cgroup_parent: Text = "cgroup.parent",
            cgroup_memory_max: Size = "cgroup.memory_max",
            cgroup_cpu_percent: Whole = "cgroup.cpu_percent",
            cgroup_pids_max: Whole = "cgroup.pids_max",
            catch_workers_output: Flag = "catch_workers_output",
            decorate_workers_output: Flag = "decorate_workers_output",
            app_log: Text = "app_log",
            env_file: Text = "env_file",
            friendly_error_pages: Flag = "friendly_error_pages",
            reload: Reload = "reload",
            access_log: Text = "access.log",
            access_format: Text = "access.format",
            access_suppress_path: Texts = "access.suppress_path",
            runtime: Text = "application.runtime",
            routing: Routing = "routing",
        }
        tables {
            env: Text = "env",
        }
    }
}

draft! {
    PhpDraft {
        keys {
            version: Text = "application.version",
            library: Text = "application.library",
            php_ini: Text = "application.php_ini",
            limit_extensions: Texts = "application.limit_extensions",
            script_root: Text = "application.script_root",
            request_settings: RequestRule = "application.request_settings",
            preloader_idle_timeout: Time = "application.preloader_idle_timeout",
            start_timeout: Time = "application.start_timeout",
            warm_up: Whole = "application.warm_up",
            warm_up_time: Time = "application.warm_up_time",
            preloader: PreloaderChoice = "application.preloader",
            opcache_cache: Text = "application.opcache_cache",
            worker: Text = "application.worker",
            worker_mode: WorkerModeChoice = "application.worker_mode",
            isolation: IsolationChoice = "application.isolation",
            loop_requests: Whole = "application.loop_requests",
            loop_memory: Size = "application.loop_memory",
            boot_timeout: Time = "application.boot_timeout",
            boot_connections: ConnectionsChoice = "application.boot_connections",
            warm_up_requests: Texts = "application.warm_up_requests",
            watch: Texts = "application.watch",
        }
        tables {
            warm_up_server: Text = "application.warm_up_server",
            php_value: IniValue = "application.php_value",
            php_flag: IniValue = "application.php_flag",
            php_admin_value: IniValue = "application.php_admin_value",
            php_admin_flag: IniValue = "application.php_admin_flag",
        }
    }
}

draft! {
    CgiDraft {
        keys {
            script: Text = "application.script",
            root: Text = "application.root",
            search_arguments: Flag = "application.search_arguments",
            parameters: Texts = "application.parameters",
        }
        tables {}
    }
}

draft! {
    HttpDraft {
        keys {
            address: Text = "application.address",
            root: Text = "application.root",
            start_command: Text = "application.start_command",
            handshake: Handshake = "application.handshake",
            instances: Whole = "application.instances",
            app_env: Text = "application.app_env",
            load_shell_envvars: Flag = "application.load_shell_envvars",
            umask: FileMode = "application.umask",
            preloader_idle_timeout: Time = "application.preloader_idle_timeout",
            start_timeout: Time = "application.start_timeout",
        }
        tables {
            rlimits: Bounds = "application.rlimits",
        }
    }
}

draft! {
    FastCgiDraft {
        keys {
            start_command: Text = "application.start_command",
            program: Text = "application.program",
            arguments: Texts = "application.arguments",
            root: Text = "application.root",
            start_timeout: Time = "application.start_timeout",
            abort_timeout: Time = "application.abort_timeout",
            parameters: Texts = "application.parameters",
            script_root: Text = "application.script_root",
        }
        tables {}
    }
}

draft! {
    WrappedDraft {
        keys {
            root: Text = "application.root",
            entry: Text = "application.entry",
            interpreter: Text = "application.interpreter",
            concurrency: Whole = "application.concurrency",
            threads: Whole = "application.threads",
            preloader_idle_timeout: Time = "application.preloader_idle_timeout",
            refork_after: Counts = "application.refork_after",
            huge_code_pages: Flag = "application.huge_code_pages",
            preload: PreloadRule = "application.preload",
            start_timeout: Time = "application.start_timeout",
        }
        tables {}
    }
}

draft! {
    ApplicationsDraft {
        keys {
            directories: Texts = "applications.directories",
            root_parameter: Text = "applications.root_parameter",
            max: Whole = "applications.max",
            max_per_app: Whole = "applications.max_per_app",
            min_instances: Whole = "applications.min_instances",
            max_requests: Whole = "applications.max_requests",
            concurrency: Whole = "applications.concurrency",
            max_requests_jitter: Whole = "applications.max_requests_jitter",
            max_idle_time: Time = "applications.max_idle_time",
            max_spawning: Whole = "applications.max_spawning",
            reserve: Whole = "applications.reserve",
            use_global_queue: Flag = "applications.use_global_queue",
            max_request_queue_size: Whole = "applications.max_request_queue_size",
            max_request_queue_time: Time = "applications.max_request_queue_time",
            max_request_time: Time = "applications.max_request_time",
            memory_limit: Size = "applications.memory_limit",
            start_timeout: Time = "applications.start_timeout",
            stop_timeout: Time = "applications.stop_timeout",
            drain_timeout: Time = "applications.drain_timeout",
            work_timeout: Time = "applications.work_timeout",
            rolling_restarts: Flag = "applications.rolling_restarts",
            restart_dir: Text = "applications.restart_dir",
            stat_throttle_rate: Time = "applications.stat_throttle_rate",
            forget_after: Time = "applications.forget_after",
            min_uid: Whole = "applications.min_uid",
            user_switching: Flag = "applications.user_switching",
            user_mounts: Flag = "applications.user_mounts",
            default_user: Text = "applications.default_user",
            router_user: Text = "applications.router_user",
        }
        tables {
            groups: Texts = "applications.groups",
        }
    }
}

draft! {
    JobsDraft {
        keys {
            store: Text = "store",
            durability: Text = "durability",
            push_timeout: Time = "push_timeout",
            machine_timeout: Time = "machine_timeout",
            user: Text = "user",
            listen: Text = "listen",
            listen_tcp: Text = "listen_tcp",
            secret_file: Text = "secret_file",
            keep_done: Time = "keep_done",
            keep_failed: Time = "keep_failed",
            max_payload: Size = "max_payload",
            max_result: Size = "max_result",
        }
        tables {}
    }
}

draft! {
    JobQueueDraft {
        keys {
            pool: Text = "pool",
            script: Text = "script",
            max_running: Whole = "max_running",
            weight: Whole = "weight",
            reserve: Flag = "reserve",
            timeout: Time = "timeout",
            attempts: Whole = "attempts",
            crashes: Whole = "crashes",
            backoff_first: Time = "backoff.first",
            backoff_factor: Whole = "backoff.factor",
            backoff_most: Time = "backoff.most",
            backoff_jitter: Whole = "backoff.jitter",
            rate_jobs: Whole = "rate.jobs",
            rate_per: Time = "rate.per",
            push_users: Texts = "push_users",
        }
        tables {
            kinds: Text = "kinds",
        }
    }
}

draft! {
    JobScheduleDraft {
        keys {
            queue: Text = "queue",
            kind: Text = "kind",
            cron: Text = "cron",
            timezone: Text = "timezone",
            missed: Text = "missed",
            overlap: Text = "overlap",
            payload: Text = "payload",
        }
        tables {}
    }
}

#[derive(Debug)]
pub(super) struct JobsText {
    pub(super) location: Location,
    pub(super) draft: JobsDraft,
    pub(super) queues: Vec<(String, Location, JobQueueDraft)>,
    pub(super) schedules: Vec<(String, Location, JobScheduleDraft)>,
}

#[derive(Debug)]
pub(super) enum ApplicationDraft {
    Absent,
    Wrong,
    Php(Box<PhpDraft>),
    Cgi(Box<CgiDraft>),
    Http(Box<HttpDraft>),
    Node(Box<HttpDraft>),
    FastCgi(Box<FastCgiDraft>),
    Wrapped(Interface, Box<WrappedDraft>),
    Rust,
}

#[derive(Debug)]
pub(super) struct PoolText {
    pub(super) name: String,
    pub(super) location: Location,
    pub(super) draft: PoolDraft,
    pub(super) application: ApplicationDraft,
    pub(super) applications: Box<ApplicationsDraft>,
    pub(super) applications_location: Option<Location>,
}

impl PoolText {
    pub(super) fn runtime_location(&self) -> &Location {
        let runtime = self.draft.runtime.written();
        runtime.map_or(&self.location, |runtime| &runtime.location)
    }

    pub(super) fn is_routed(&self) -> bool {
        self.draft
            .routing
            .written()
            .is_some_and(|written| written.value == Routing::Application)
    }
}
