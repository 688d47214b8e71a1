<?php
// Each case tells what it finds, and leaves something that the next request must not find, or may.

class Noted
{
    public function __construct(private string $text)
    {
    }

    public function __destruct()
    {
        echo $this->text;
    }
}

class Handler implements SessionHandlerInterface
{
    public function open(string $path, string $name): bool
    {
        return true;
    }

    public function close(): bool
    {
        return true;
    }

    public function read(string $id): string|false
    {
        return (string) @file_get_contents(ini_get('session.save_path') . "/own_$id");
    }

    public function write(string $id, string $data): bool
    {
        match ($_GET['fails'] ?? '') {
            'exit' => exit('left in write'),
            'throw' => throw new RuntimeException('thrown in write'),
            default => null,
        };
        return file_put_contents(ini_get('session.save_path') . "/own_$id", $data) !== false;
    }

    public function destroy(string $id): bool
    {
        return true;
    }

    public function gc(int $lifetime): int|false
    {
        return 0;
    }
}

function counted()
{
    static $count = 0;
    return ++$count;
}

function handle(): void
{
    switch ($_GET['case'] ?? '') {
        case 'superglobals':
            $names = array_filter(array_keys($_SERVER), fn ($name) => str_starts_with($name, 'HTTP_'));
            sort($names);
            echo json_encode([
                $_GET['token'], $_POST, $_COOKIE, array_keys($_FILES), $_REQUEST, $names,
                $_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null, $_SERVER['CONTENT_TYPE'],
                getenv('HTTP_COOKIE'), isset($_SESSION), $_SERVER['QUERY_STRING'],
            ]);
            // Whoever writes into them does so for this request.
            $_GET['left'] = $_POST['left'] = $_COOKIE['left'] = $_REQUEST['left'] = $_SERVER['HTTP_LEFT'] = 'left';
            $_FILES['left'] = ['name' => 'left'];
            break;
        case 'input':
            echo file_get_contents('php://input'), '|', strlen(file_get_contents('php://input'));
            break;
        case 'held input':
            // A handle that outlives its request reads nothing of the next.
            global $held;
            try {
                echo $held === null ? 'none' : (is_resource($held) ? stream_get_contents($held) : 'closed');
            } catch (TypeError) {
                echo 'closed';
            }
            $held = fopen('php://input', 'r');
            fread($held, 1);
            break;
        case 'headers':
            $all = getallheaders();
            ksort($all);
            echo json_encode([$all, filter_input(INPUT_GET, 'token'), filter_input(INPUT_COOKIE, 'a'), filter_has_var(INPUT_POST, 'p')]);
            break;
        case 'time':
            echo abs($_SERVER['REQUEST_TIME'] - time()) <= 5 && $_SERVER['REQUEST_TIME_FLOAT'] <= microtime(true) ? 'now' : 'then', ' ',
                $_SERVER['REQUEST_TIME_FLOAT'] === ($GLOBALS['before'] ?? 0) ? 'same' : 'new';
            $GLOBALS['before'] = $_SERVER['REQUEST_TIME_FLOAT'];
            break;
        case 'memory of the process':
            // What stays in a loop: globals, statics, constants, settings, the environment, handlers.
            echo counted(), ' ', $GLOBALS['kept'] ?? 'no', ' ', defined('KEPT') ? 'yes' : 'no', ' ',
                ini_get('precision'), ' ', getenv('KEPT') ?: 'no', ' ', date_default_timezone_get(), ' ',
                set_error_handler(fn () => true) === null ? 'no' : 'yes';
            $GLOBALS['kept'] = 'yes';
            defined('KEPT') || define('KEPT', 1);
            ini_set('precision', '5');
            putenv('KEPT=yes');
            date_default_timezone_set('Asia/Tokyo');
            break;
        case 'session':
            session_id($_GET['id'] ?? '') === false && print('bad');
            session_start(['use_cookies' => 0, 'use_only_cookies' => 0, 'cache_limiter' => '']);
            echo json_encode($_SESSION), ' ', strlen(session_id()) > 20 ? 'new' : session_id();
            $_SESSION[$_GET['token']] = 1;
            break;
        case 'session before':
            echo json_encode([session_status() === PHP_SESSION_NONE, session_id(), $_SESSION ?? null]);
            break;
        case 'session left open':
            session_id($_GET['id']);
            session_start(['use_cookies' => 0, 'use_only_cookies' => 0, 'cache_limiter' => '']);
            echo $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
            exit;
        case 'save handler':
            session_set_save_handler(new Handler(), true);
            session_id($_GET['id']);
            session_start(['use_cookies' => 0, 'use_only_cookies' => 0, 'cache_limiter' => '']);
            echo json_encode($_SESSION);
            $_SESSION[$_GET['token']] = 1;
            session_write_close();
            break;
        case 'auto session':
            echo json_encode($_SESSION), ' ', session_id();
            $_SESSION[$_GET['token']] = 1;
            break;
        case 'own session':
            // Before and after it is begun.
            $before = [$_SESSION ?? null, session_id()];
            session_start(['cache_limiter' => '']);
            echo json_encode([...$before, $_SESSION, session_id()]);
            $_SESSION['secret'] = $_GET['token'];
            $GLOBALS['reference'] = &$_SESSION;
            break;
        case 'leftovers':
            libxml_use_internal_errors(true);
            echo json_encode([
                strtok(' '), count(libxml_get_errors()), json_last_error(), ini_get('max_execution_time'), ignore_user_abort(),
                is_int(getlastmod()), is_int(getmyinode()), $_SERVER['argv'] ?? null,
            ]);
            strtok('one secret', ' ');
            simplexml_load_string('<a><secret></a>');
            json_decode('{');
            set_time_limit(7);
            ignore_user_abort(true);
            break;
        case 'rewritten':
            if (isset($_GET['left'])) {
                output_add_rewrite_var('left', $_GET['left']);
            }
            output_add_rewrite_var('own', 'x');
            echo '<form></form>';
            break;
        case 'environment':
            // Compiled here, so that PHP makes it here.
            $env = eval('return $_ENV;');
            echo json_encode([getenv('HTTP_COOKIE'), $_SERVER['HTTP_COOKIE'] ?? null, $env['HTTP_COOKIE'] ?? null, getenv('OWN'), $env['OWN'] ?? null]);
            break;
        case 'response':
            echo http_response_code(), ' ', json_encode(array_values(array_filter(headers_list(), fn ($line) => !str_starts_with($line, 'X-Powered')))), ' ',
                ob_get_level() - (int) (bool) ini_get('output_buffering'), ' ', connection_status();
            http_response_code(418);
            header('X-Left: ' . $_GET['token']);
            setcookie('left', $_GET['token']);
            header_register_callback(fn () => header('X-Callback: ' . $_GET['token']));
            ob_start();
            ob_start(fn ($text) => $text);
            break;
        case 'shutdown':
            register_shutdown_function(function () {
                echo ' first';
                register_shutdown_function(fn () => print(' second'));
            });
            echo 'body';
            break;
        case 'destructor':
            $noted = new Noted(' gone');
            echo 'here';
            break;
        case 'exit':
            register_shutdown_function(fn () => print(' and shutdown'));
            echo 'before';
            exit(' exit');
        case 'nested exit':
            ob_start();
            echo 'buffered';
            (function () {
                try {
                    exit(3);
                } finally {
                    echo ' never';
                }
            })();
            break;
        case 'exception':
            throw new RuntimeException('uncaught in ' . $_GET['token']);
        case 'exception handler':
            set_exception_handler(fn (Throwable $e) => print('handled ' . $e->getMessage()));
            try {
                throw new RuntimeException('it');
            } finally {
                register_shutdown_function(fn () => set_exception_handler(null));
            }
        case 'finish':
            echo 'answered';
            fastcgi_finish_request();
            echo 'dropped';
            file_put_contents($_GET['file'], 'went on');
            break;
        case 'directory':
            printf('%s %03o', basename(getcwd()) === basename(__DIR__) ? 'home' : getcwd(), umask());
            chdir('/');
            umask(0777);
            break;
        case 'upload':
            $path = $_FILES['f']['tmp_name'] ?? '';
            echo json_encode([$_FILES['f']['name'] ?? null, is_uploaded_file($path), $path === '' ? false : file_get_contents($path), $GLOBALS['path'] ?? null, is_file($GLOBALS['path'] ?? '/no')]);
            file_put_contents($_GET['file'], $path);
            break;
        case 'random':
            echo implode(' ', [mt_rand(), rand(), lcg_value(), uniqid('', true), bin2hex(random_bytes(8)), str_shuffle('abcdefghijklmnopqrstuvwxyz')]);
            break;
        case 'stat':
            clearstatcache();
            $path = $_GET['file'];
            echo is_file($path) ? filesize($path) : 'none';
            break;
        case 'peak':
            if (isset($_GET['big'])) {
                $text = str_repeat('x', 20 << 20);
            }
            echo memory_get_peak_usage() > 15 << 20 ? 'much' : 'little';
            break;
        case 'everything':
            // All that the process shows of users, in whatever state it is.
            if (isset($_GET['session'])) {
                session_id($_GET['session']);
                session_start(['use_cookies' => 0, 'use_only_cookies' => 0, 'cache_limiter' => '']);
                $_SESSION['user'] = $_GET['token'];
            }
            if (isset($_GET['header'])) {
                header('X-User: ' . $_GET['token']);
                ob_start();
            }
            echo json_encode([
                $_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES, $_SERVER, $_SESSION ?? null, session_id(), getenv(), getallheaders(),
                headers_list(), file_get_contents('php://input'), filter_input_array(INPUT_COOKIE), filter_input_array(INPUT_POST),
                error_get_last(),
            ], JSON_PARTIAL_OUTPUT_ON_ERROR);
            if (isset($_GET['fails'])) {
                register_shutdown_function(fn () => trigger_error('by ' . $_GET['token'], E_USER_WARNING));
                throw new RuntimeException('of ' . $_GET['token']);
            }
            break;
        case 'gzip':
            echo str_repeat('compressed ', 100);
            break;
        case 'pid':
            echo getmypid();
            break;
        case 'marks':
            echo json_encode([$_SERVER['FRANKENPHP_WORKER'] ?? null, is_numeric($_SERVER['MAX_REQUESTS'] ?? null),
                array_map('function_exists', ['forkyard_handle_request', 'frankenphp_handle_request', 'frankenphp_finish_request',
                    'frankenphp_request_headers', 'frankenphp_response_headers', 'frankenphp_log'])]);
            break;
        case 'worker':
            echo json_encode(forkyard_worker());
            break;
        case 'headers send':
            try {
                header('X-A: a');
                header('X-A: b', false);
                header('Link: </a>; rel=preload');
                $early = headers_send(103);
                $all = apache_response_headers()['X-A'];
                $sent = headers_send((int) ($_GET['status'] ?? 203));
                @header('X-Late: 1');
                echo json_encode([$early, $all, $sent, headers_sent()]);
            } catch (ValueError $e) {
                echo $e->getMessage();
            }
            break;
        case 'keep':
            $GLOBALS['much'] = str_repeat('x', 100 << 20);
            break;
        case 'hold':
            while (!file_exists($_GET['file'])) {
                usleep(2000);
                clearstatcache();
            }
            echo 'held';
            break;
        case 'sleep':
            sleep(60);
            break;
        case 'fatal':
            echo 'printed', error_get_last() === null ? '' : ' with an error';
            eval('class Noted {}');
            break;
        case 'memory':
            register_shutdown_function(fn () => print('shutdown'));
            ini_set('memory_limit', '8M');
            $all = [];
            while (true) {
                $all[] = str_repeat('x', 100000);
            }
        case 'time limit':
            set_time_limit(1);
            while (true) {
            }
        case 'crash':
            posix_kill(getmypid(), 11);
            break;
        case 'in shutdown':
            register_shutdown_function(fn () => print(' first'));
            register_shutdown_function(fn () => eval('class Noted {}'));
            echo 'body';
            break;
        case 'throws in shutdown':
            register_shutdown_function(fn () => throw new RuntimeException('thrown late'));
            register_shutdown_function(fn () => print(' second'));
            echo 'body';
            break;
        case 'exits in shutdown':
            register_shutdown_function(fn () => exit(' left'));
            register_shutdown_function(fn () => print(' second'));
            echo 'body';
            break;
        case 'exception handler throws':
            set_exception_handler(fn (Throwable $e) => throw new RuntimeException('instead of ' . $e->getMessage()));
            throw new RuntimeException('it');
        case 'throws in output':
            ob_start(fn () => throw new RuntimeException('thrown in output'));
            echo 'body';
            break;
        case 'flood':
            for ($i = 0; $i < 10000; $i++) {
                echo str_repeat('x', 65536);
                flush();
            }
            break;
        default:
            echo 'hello ', $_GET['token'] ?? '';
    }
}
