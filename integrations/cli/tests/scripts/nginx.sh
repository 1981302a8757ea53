# needs: /usr/sbin/nginx curl setpriv
# A web server whose pages, logs, uploads and proxy cache lie in a device: sendfile, ranges, asynchronous reads, reload.
mkdir "$D/w" "$D/w/html" "$D/w/put" "$D/w/cache" && cd "$D/w" && chown -R 65534:65534 "$D/w" || exit 1; mkdir "$T/n"; chown 65534:65534 "$T/n"
seq 200000 > html/big; echo small > html/index.html; mkdir html/d; for i in 1 2 3; do echo $i > html/d/f$i; done; touch -d 2020-01-01 html/*
cat > "$T/n/conf" << END
daemon off; worker_processes 2; error_log $D/w/error.log; pid $T/n/pid; events { }
http { access_log $D/w/access.log; sendfile on; client_body_temp_path $D/w/body; proxy_temp_path $D/w/proxy; fastcgi_temp_path $D/w/fcgi; uwsgi_temp_path $D/w/uwsgi; scgi_temp_path $D/w/scgi;
  proxy_cache_path $D/w/cache keys_zone=c:1m levels=1:2; open_file_cache max=100;
  server { listen unix:$T/n/s; root $D/w/html; location /d/ { autoindex on; autoindex_exact_size on; } location /direct/ { alias $D/w/html/; directio 4k; sendfile off; }
    location /cached/ { proxy_pass http://unix:$T/n/s:/; proxy_cache c; proxy_cache_valid 1h; add_header X-C \$upstream_cache_status; } } }
END
be() { exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
(be /usr/sbin/nginx -c "$T/n/conf" > "$T/n/out" 2>&1) & server=$!; trap 'kill -9 $server 2> /dev/null' EXIT
get() { curl -s --unix-socket "$T/n/s" "$@"; }
for i in $(seq 200); do get http://h/ > /dev/null && break; sleep 0.05; done
get http://h/; get http://h/big | sha256sum; get -r 1000-1999 http://h/big | sha256sum; get http://h/direct/big | sha256sum
get -r 0-9,100-109 http://h/big | grep -c Content-Range; get -o /dev/null -w '%{http_code}\n' http://h/none; get -z 'Thu, 02 Jan 2020 00:00:00 GMT' -o /dev/null -w '%{http_code}\n' http://h/big
get -D - -o "$T/n/got" http://h/cached/big | grep -i x-c | tr -d '\r'; sha256sum < "$T/n/got"
for i in $(seq 100); do get -D - -o "$T/n/got" http://h/cached/big | grep -qi 'x-c: hit' && echo HIT && break; sleep 0.1; done; sha256sum < "$T/n/got"; find cache -type f | wc -l
get http://h/d/ | grep -c '<a href="f'; echo changed > html/new; mv html/new html/index.html; kill -HUP $(cat "$T/n/pid")
for i in $(seq 100); do [ "$(get http://h/)" = changed ] && break; sleep 0.1; done; get http://h/
for i in $(seq 4); do (for j in $(seq 25); do get http://h/d/f2; done) >> "$T/n/many" & asked="$asked $!"; done; wait $asked; sort "$T/n/many" | uniq -c | tr -s ' '
kill -QUIT $(cat "$T/n/pid"); wait $server; echo "stopped: $?"; grep -c 'GET /d/f2' access.log; ! grep -E 'alert|crit|emerg' error.log
