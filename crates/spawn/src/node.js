'use strict';
// Preloaded by every Node.js process of an application. Redirects the first HTTP server that listens to the private socket
// on which forkyard reaches the application, and the application's own connections to its port to the same socket.
(() => {
  const path = process.env.FORKYARD_NODE_SOCKET;
  if (!path) return;
  const fs = require('fs');
  const net = require('net');
  const { dirname, join } = require('path');
  const directory = dirname(path);
  const { listen } = net.Server.prototype;
  const { connect } = net.Socket.prototype;
  const NAMES = ['forkyard', 'passenger', '/passenger'];
  const HERE = /^((.+\.)?localhost\.?|127(\.\d+){3}|0\.0\.0\.0|::1?|::ffff:127(\.\d+){3})$/i;
  // The port that forkyard assigned.
  const given = Number(process.env.PORT);
  // The server on the socket, its requested port, and the number of other servers that requested the same port.
  let server = null, port = null, others = 0, automatic = true;

  // The arguments of listen(): a port, a name for the private socket, or something else.
  function asked(args) {
    const [first, second] = args;
    const of = (port, host) => ({ port: Number(port), host: typeof host === 'string' ? host : undefined });
    if (first === undefined || first === null || typeof first === 'function') return of(0);
    if (typeof first === 'object') {
      if (NAMES.includes(first.path)) return { name: first.path };
      return first.path === undefined && first.port !== undefined ? of(first.port, first.host) : {};
    }
    if (typeof first === 'string' && !/^\d+$/.test(first)) return NAMES.includes(first) ? { name: first } : {};
    return of(first, second);
  }

  function kind(candidate) {
    if (candidate instanceof require('http').Server) return 'http';
    if (/^Http2(Secure)?Server$/.test(candidate.constructor.name)) return 'http2';
    if (candidate instanceof require('tls').Server && candidate instanceof require('https').Server) return 'https';
    return null;
  }

  // Only one process of the application gets the socket. The workers of a cluster share it.
  function claim() {
    const cluster = require('cluster');
    const { threadId } = require('worker_threads');
    const own = cluster.isWorker ? `cluster ${process.ppid}` : `${process.pid} ${threadId}`;
    const file = join(directory, 'claim');
    // Created atomically with its content, because another worker of the cluster may read it immediately.
    const draft = join(directory, `claim-${process.pid}-${threadId}`);
    try {
      fs.writeFileSync(draft, own, { mode: 0o600 });
      fs.linkSync(draft, file);
      return true;
    } catch {
      try {
        return fs.readFileSync(file, 'utf8') === own;
      } catch {
        return false;
      }
    } finally {
      fs.rmSync(draft, { force: true });
    }
  }

  function takes(candidate, wish) {
    if (server) return server === candidate || !server.listening;
    // A helper's server on a free port is for its parent process only.
    const isHelper = wish.port === 0 && process.channel && !require('cluster').isWorker;
    return (wish.name || (automatic && kind(candidate) && !isHelper)) && claim();
  }

  // forkyard uses HTTP/1.1 without TLS on the socket, because the web server terminates TLS.
  function speakPlainly(candidate) {
    const protocol = kind(candidate);
    if (protocol !== 'https' && protocol !== 'http2') return;
    const front = protocol === 'http2' ? require('http').createServer() : candidate;
    if (protocol === 'http2') {
      front.on('request', (...args) => candidate.emit('request', ...args));
      if (candidate.listenerCount('upgrade')) front.on('upgrade', (...args) => candidate.emit('upgrade', ...args));
    }
    candidate.removeAllListeners('connection');
    candidate.on('connection', (socket) => {
      front.emit(protocol === 'http2' ? 'connection' : 'secureConnection', socket);
    });
  }

  // address() returns the address that the application requested.
  function pretend(candidate, wish) {
    if (wish.port === undefined || Number.isNaN(wish.port)) return;
    const family = net.isIPv4(wish.host ?? '') || wish.host === 'localhost' ? 'IPv4' : 'IPv6';
    const address = wish.host === 'localhost' ? '127.0.0.1' : wish.host ?? '::';
    const said = { address, family, port: wish.port || given || 0 };
    Object.defineProperty(candidate, 'address', {
      configurable: true,
      writable: true,
      value: () => (candidate.listening ? { ...said } : null),
    });
  }

  // Express and Connect build links and redirects from these properties if the application is mounted below a path.
  function mount(candidate) {
    candidate.prependListener('request', (request) => {
      const prefix = request.headers['x-forkyard-prefix'];
      if (prefix) Object.assign(request, { baseUrl: prefix, originalUrl: prefix + request.url });
    });
  }

  function tell() {
    try {
      const flags = fs.constants.O_WRONLY | fs.constants.O_NONBLOCK;
      const fifo = fs.openSync(join(process.env.FORKYARD_SPAWN_WORK_DIR, 'response/finish'), flags);
      fs.writeSync(fifo, '1');
      fs.closeSync(fifo);
    } catch {
      // Not needed: forkyard also polls the socket.
    }
  }

  net.Server.prototype.listen = function (...args) {
    const wish = asked(args);
    const isFirst = takes(this, wish);
    // The same port on another address: localhost has two. The workers of a cluster share a socket.
    const isSame = !isFirst && server && wish.port > 0 && wish.port === port && kind(this);
    if (wish.name && !isFirst) {
      throw new Error('another server of the application has forkyard\'s socket already; '
        + 'PhusionPassenger.configure({ autoInstall: false }) keeps it for the one that asks by name');
    }
    // The application checks whether its port is free, but forkyard has reserved it.
    const isTrial = !server && wish.port === given && !kind(this) && !fs.existsSync(path);
    if (!isFirst && !isSame && !isTrial) return listen.apply(this, args);
    const callback = args.find((argument) => typeof argument === 'function');
    if (callback) this.once('listening', callback);
    if (isFirst) {
      [server, port] = [this, wish.port];
      this.once('listening', tell);
    }
    speakPlainly(this);
    if (kind(this)) mount(this);
    pretend(this, wish);
    const options = { path: isFirst ? path : join(directory, `also-${process.pid}-${others++}`) };
    const { signal, backlog } = typeof args[0] === 'object' && args[0] ? args[0] : {};
    const numbers = args.slice(1).filter((argument) => typeof argument === 'number');
    return listen.call(this, Object.assign(options, { backlog: backlog ?? numbers[0] ?? 4096 }, signal && { signal }));
  };

  // The options of connect().
  function destination([first, second]) {
    if (typeof first === 'object' && first) return first;
    return { port: first, host: typeof second === 'string' ? second : undefined };
  }

  function isOwn({ path: pipe, port: wanted, host }) {
    if (pipe || !['number', 'string'].includes(typeof wanted)) return false;
    const isPort = Number(wanted) > 0 && [given, port].includes(Number(wanted));
    return isPort && HERE.test(host || 'localhost') && fs.existsSync(path);
  }

  // Keep TLS connections unchanged: the server doesn't use TLS.
  net.Socket.prototype.connect = function (...args) {
    const list = Array.isArray(args[0]) ? args[0] : args;
    const options = destination(list);
    if (this.encrypted || !isOwn(options)) return connect.apply(this, args);
    const callback = list.find((argument) => typeof argument === 'function');
    return connect.call(this, { ...options, path, port: undefined, host: undefined }, callback);
  };

  // Passenger's API.
  const Passenger = new (require('events'))();
  Passenger.configure = (options) => {
    if (options && options.autoInstall === false) automatic = false;
  };
  Passenger.on('newListener', (event) => {
    if (event === 'exit' && !Passenger.listenerCount('exit')) process.once('SIGTERM', () => Passenger.emit('exit'));
  });
  globalThis.PhusionPassenger = Passenger;
})();
