<?php
session_save_path($_GET['path']);
session_id('compat');
session_start();
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
var_dump($_SESSION, session_status());
