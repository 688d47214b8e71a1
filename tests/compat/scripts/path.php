<?php
foreach ($_SERVER as $name => $value) {
    if (preg_match('/SCRIPT|PATH|DOCUMENT|PHP_|REDIRECT|AUTH|REQUEST_URI|SOFTWARE/', $name)) {
        echo "$name=$value\n";
    }
}
var_dump(__FILE__, getcwd());
