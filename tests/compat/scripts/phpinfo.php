<?php
try {
    var_dump(phpinfo(is_numeric($_GET['what']) ? (int)$_GET['what'] : $_GET['what']));
} catch (TypeError $error) {
    echo $error->getMessage(), "\n";
}
