<?php
// Cases about what a process that is put back must not keep.

function handle_more(): void
{
    switch ($_GET['case'] ?? '') {
        case 'facts':
            echo json_encode(forkyard_worker());
            break;
        case 'places':
            // Where libc keeps the last error, and the kernel writes where the thread runs.
            $libc = FFI::cdef('uintptr_t __errno_location(void), pthread_self(void); extern intptr_t __rseq_offset;', 'libc.so.6');
            echo $libc->__errno_location(), ' ', $libc->pthread_self() + $libc->__rseq_offset;
            break;
        case 'random of all':
            echo implode(' ', [mt_rand(), rand(), lcg_value(), uniqid('', true), bin2hex(random_bytes(8)),
                str_shuffle('abcdefghijklmnopqrstuvwxyz'), bin2hex(openssl_random_pseudo_bytes(8))]);
            break;
        case 'mixture':
            // Leaves something in as many extensions as there are, and in memory of every kind.
            static $kept = [];
            global $everything;
            $kept[] = str_repeat($_GET['token'] ?? 'x', 1000);
            setlocale(LC_ALL, 'C.UTF-8', 'en_US.UTF-8');
            preg_match('/(\d+)-(?<name>\w+)/u', 'abc 12-' . ($_GET['token'] ?? 'x'), $everything['match']);
            $everything['json'] = json_decode(json_encode($_SERVER));
            $everything['date'] = new DateTimeImmutable('now', new DateTimeZone('Asia/Tokyo'));
            $everything['hash'] = hash_init('sha256');
            hash_update($everything['hash'], 'text');
            $everything['stream'] = fopen('php://temp/maxmemory:1000', 'w+');
            fwrite($everything['stream'], str_repeat('y', 20000));
            $everything['file'] = tmpfile();
            $everything['ctype'] = ctype_alpha('abc');
            $everything['iconv'] = iconv('UTF-8', 'ISO-8859-1', "\u{e9}");
            if (function_exists('openssl_encrypt')) {
                $everything['sealed'] = openssl_encrypt('text', 'aes-128-cbc', 'key', 0, str_repeat('i', 16));
            }
            if (class_exists('DOMDocument')) {
                $everything['dom'] = new DOMDocument();
                $everything['dom']->loadXML('<a><b c="d">e</b></a>');
            }
            if (function_exists('imagecreatetruecolor')) {
                $everything['image'] = imagecreatetruecolor(300, 300);
            }
            if (class_exists('NumberFormatter')) {
                $everything['format'] = (new NumberFormatter('de_DE', NumberFormatter::CURRENCY))->format(1234.5);
            }
            if (function_exists('curl_init')) {
                $everything['curl'] = curl_init('http://127.0.0.1:1/');
                curl_setopt($everything['curl'], CURLOPT_RETURNTRANSFER, true);
                curl_exec($everything['curl']);
            }
            if (class_exists('SQLite3')) {
                $everything['database'] = new SQLite3(':memory:');
                $everything['database']->exec('create table a (b)');
            }
            if (function_exists('mb_internal_encoding')) {
                mb_internal_encoding('ISO-8859-1');
            }
            libxml_use_internal_errors(true);
            stream_context_set_default(['http' => ['method' => 'POST']]);
            spl_autoload_register(fn ($class) => null);
            set_error_handler(fn () => true);
            echo 'mixed';
            break;
        case 'descriptors':
            // Files that stay open.
            global $files;
            for ($i = 0; $i < 200; $i++) {
                $files[] = fopen(__FILE__, 'r');
            }
            echo count(array_filter($files, 'is_resource'));
            break;
        case 'limits':
            global $limits;
            echo posix_getrlimit()['soft core'] === 7 ? 'changed' : 'not yet';
            posix_setrlimit(POSIX_RLIMIT_CORE, 7, -1);
            umask(0777);
            chdir('/');
            break;
        case 'leaves a child':
            global $child;
            $child = proc_open(['sleep', '20'], [], $pipes);
            fastcgi_finish_request();
            echo 'lost';
            break;
        case 'forks a child':
            echo shell_exec('echo done');
            break;
        case 'lowers a limit':
            posix_setrlimit(POSIX_RLIMIT_NPROC, 5000, 5000);
            echo 'done';
            break;
        case 'is nice':
            proc_nice(3);
            echo 'done';
            break;
        case 'leads a session':
            posix_setsid();
            echo 'done';
            break;
        default:
            handle();
    }
}
