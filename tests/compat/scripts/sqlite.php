<?php
$db = new PDO('sqlite::memory:', null, null, [PDO::ATTR_PERSISTENT => ($_GET['persistent'] ?? '0') === '1']);
$db->exec('create table if not exists t (a int)');
$db->exec('insert into t values (1), (2)');
var_dump($db->query('select count(*) from t')->fetchColumn());
