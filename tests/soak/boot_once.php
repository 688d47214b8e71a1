<?php
// The worker script of boot_once.py: uses as many extensions as there are, leaves something in each, and says what is its client's.

function use_extensions(string $token): array
{
    global $kept;
    $used = [];
    $parts = [
        'gd' => function () {
            $image = imagecreatetruecolor(120, 80);
            imagefilledellipse($image, 60, 40, 100, 60, imagecolorallocate($image, 200, 10, 30));
            ob_start();
            imagepng($image);
            return [$image, ob_get_clean()];
        },
        'intl' => fn () => [
            new NumberFormatter('de_DE', NumberFormatter::CURRENCY),
            (new Collator('sv_SE'))->compare('z', "\u{f6}"),
            Normalizer::normalize("e\u{301}"),
        ],
        'dom' => function () use ($token) {
            $document = new DOMDocument();
            $document->loadXML("<a><b c=\"$token\">d</b></a>");
            return [$document, (new DOMXPath($document))->query('//b')];
        },
        'simplexml' => fn () => simplexml_load_string("<a><b>$token</b></a>"),
        'curl' => function () {
            $handle = curl_init('http://127.0.0.1:1/');
            curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
            curl_exec($handle);
            return $handle;
        },
        'mysqli' => function () {
            mysqli_report(MYSQLI_REPORT_OFF);
            $link = mysqli_init();
            @$link->real_connect('127.0.0.1', 'nobody', '', '', 1);
            return $link;
        },
        'sqlite3' => function () use ($token) {
            $database = new SQLite3(':memory:');
            $database->exec('create table a (b)');
            $database->exec("insert into a values ('$token')");
            return [$database, $database->querySingle('select b from a')];
        },
        'iconv' => fn () => iconv('UTF-8', 'ISO-2022-JP', "\u{65e5}\u{672c}$token"),
        'mbstring' => fn () => mb_convert_encoding("\u{e9}$token", 'UTF-16', 'UTF-8') . mb_internal_encoding('EUC-JP'),
        'openssl' => fn () => openssl_encrypt($token, 'aes-256-gcm', str_repeat('k', 32), 0, str_repeat('i', 12), $tag),
        'sodium' => fn () => sodium_crypto_secretbox($token, str_repeat('n', 24), str_repeat('k', 32)),
        'zlib' => fn () => gzcompress(str_repeat($token, 500)),
        'apcu' => fn () => apcu_store('token', $token) . apcu_fetch('token'),
        'readline' => fn () => readline_info('line_buffer', $token) . readline_add_history($token),
        'xsl' => fn () => new XSLTProcessor(),
        'gettext' => fn () => textdomain('other') . bindtextdomain('other', '/tmp'),
        'calendar' => fn () => cal_days_in_month(CAL_GREGORIAN, 2, 2024),
    ];
    foreach ($parts as $extension => $use) {
        if (extension_loaded($extension)) {
            $kept[$extension] = $use();
            $used[] = $extension;
        }
    }
    setlocale(LC_ALL, 'C.UTF-8');
    putenv("TOKEN=$token");
    // Compiled, and compiled anew with each token: PCRE's JIT.
    preg_match('/^(?<word>\w+)-(\d+)$/u', "$token-12", $kept['match']);
    preg_match_all("/$token|[a-f]{2,}/i", str_repeat("x{$token}y", 50), $kept['matches']);
    // Runs long enough for OPcache's JIT.
    for ($i = 0, $sum = 0; $i < 2000; $i++) {
        $sum = ($sum * 31 + $i) % 65521;
    }
    $kept['sum'] = $sum;
    if (opcache_get_status(false)['jit']['on']) {
        $used[] = "OPcache's JIT";
    }
    if (ini_get('pcre.jit')) {
        $used[] = "PCRE's JIT";
    }
    $kept['large'] = str_repeat($token, 50000);
    $kept['file'] = tmpfile();
    fwrite($kept['file'], $token);
    return $used;
}

function handle(): void
{
    static $seen = 0;
    global $kept;
    $is_fresh = $seen++ === 0 && $kept === null && getenv('TOKEN') === false && setlocale(LC_NUMERIC, '0') === 'C';
    $what = $_GET['what'] ?? '';
    if ($what === 'places') {
        $libc = FFI::cdef('uintptr_t __errno_location(void), pthread_self(void); extern intptr_t __rseq_offset;', 'libc.so.6');
        echo json_encode([getmypid(), $libc->__errno_location(), $libc->pthread_self() + $libc->__rseq_offset]);
        return;
    }
    if ($what === 'hello') {
        echo 'hello';
        return;
    }
    if ($what === 'facts') {
        echo json_encode(forkyard_worker());
        return;
    }
    $token = $_GET['token'];
    $used = $what === 'mixture' ? use_extensions($token) : [];
    if (isset($_COOKIE['PHPSESSID']) || $what === 'session') {
        session_start();
        $_SESSION['token'] ??= $token;
    }
    echo json_encode([
        'fresh' => $is_fresh,
        'tokens' => [
            $_SESSION['token'] ?? '', $_COOKIE['token'] ?? '', $_SERVER['PHP_AUTH_USER'] ?? '', $_POST['token'] ?? '',
            isset($_FILES['f']) ? file_get_contents($_FILES['f']['tmp_name']) : '',
        ],
        'mt_rand' => mt_rand() . ' ' . rand() . ' ' . str_shuffle('abcdefghijklmnopqrstuvwxyz'),
        'random' => [
            uniqid('', true), bin2hex(random_bytes(8)), lcg_value() . ' ' . lcg_value(),
            bin2hex(openssl_random_pseudo_bytes(8)), session_create_id(),
        ],
        'used' => $used,
        // In memory that all workers of the pool share, and keep.
        'stored' => function_exists('apcu_inc') ? apcu_inc('count') : null,
    ]);
    if ($what === 'exit') {
        exit;
    }
    if ($what === 'exception') {
        throw new Exception($token);
    }
    if ($what === 'fatal') {
        // Else PHP throws it away with its buffer.
        while (ob_get_level()) {
            ob_end_flush();
        }
        $large = str_repeat('x', 1 << 30);
    }
}

while (forkyard_handle_request('handle'));
