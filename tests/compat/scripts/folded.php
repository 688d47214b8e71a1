<?php
// OPcache replaces the first call by its result, because only an administrator can set this, and not the second one.
echo ini_get('upload_tmp_dir'), ' ', ini_get_all(null, false)['upload_tmp_dir'];
