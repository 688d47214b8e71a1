# As Dockerfiles that begin with FROM php:fpm go on.
ARG PHP
FROM localhost/forkyard:${PHP}
RUN mv "$PHP_INI_DIR/php.ini-production" "$PHP_INI_DIR/php.ini"
RUN docker-php-ext-configure gd --with-freetype --with-jpeg \
    && docker-php-ext-install -j"$(nproc)" gd bcmath pdo_mysql PCNTL opcache
RUN pecl channel-update pecl.php.net && printf '\n' | pecl install -f redis-6.0.2 apcu xdebug-stable && docker-php-ext-enable redis opcache
# One that was built from its sources.
RUN rm "/etc/php/$PHP_VERSION/mods-available/apcu.ini" && docker-php-ext-enable apcu && grep -qx extension=apcu "$PHP_INI_DIR/conf.d/docker-php-ext-apcu.ini"
RUN rm "/etc/php/$PHP_VERSION/mods-available/xdebug.ini" && docker-php-ext-enable --ini-name 00-xdebug.ini xdebug \
    && grep -qx zend_extension=xdebug "$PHP_INI_DIR/conf.d/00-xdebug.ini" && rm "$PHP_INI_DIR/conf.d/00-xdebug.ini"
RUN docker-php-source extract && mkdir /usr/src/php/ext/igbinary && docker-php-ext-install igbinary && docker-php-source delete && [ ! -e /usr/src/php ]
# What Debian does not have is said.
RUN ! docker-php-ext-install oci8 soap 2>/tmp/said && grep -q "Debian has no package for PHP $PHP_VERSION with: oci8 (php$PHP_VERSION-oci8)" /tmp/said \
    && ! pecl install nothing-1.0 2>/tmp/said && grep -q "no package .* nothing (php$PHP_VERSION-nothing)" /tmp/said \
    && ! docker-php-ext-enable nothing 2>/tmp/said && grep -q "'nothing' does not exist" /tmp/said \
    && docker-php-ext-enable gd 2>/tmp/said && grep -q "warning: gd is already loaded!" /tmp/said && rm /tmp/said
# No list of packages is left in a layer.
RUN [ -z "$(find /var/lib/apt/lists -type f)" ]
RUN echo 'upload_max_filesize = 33M' >"$PHP_INI_DIR/conf.d/uploads.ini" \
    && printf '[www]\nphp_admin_value[memory_limit] = 77M\nphp_admin_value[error_log] = /proc/self/fd/2\n' >/usr/local/etc/php-fpm.d/zz-own.conf
ENV FORKYARD_POOL_WWW__MAX_CHILDREN=7 APP_KEY=key
