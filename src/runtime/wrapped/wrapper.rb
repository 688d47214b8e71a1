# Loads a Rack application and forks workers from this process. Started by forkyard; the library is its C ABI.
