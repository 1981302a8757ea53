# needs: perl ruby php zsh
# Files by other languages' libraries: written, locked, listed, renamed; sessions, DBM files, PStore, temporary files.
cd "$D" || exit 1; export HOME="$T"
perl -MFile::Temp=tempfile -MFile::Path=make_path,remove_tree -MFile::Find -MFile::Copy -MFcntl=:flock,:seek -MStorable -e '
    make_path("pl/a/b"); my ($fh, $n) = tempfile(DIR => "pl"); print $fh "x" x 70000; close $fh; print -s $n, "\n";
    open my $f, "+>", "pl/f" or die; flock($f, LOCK_EX) or die; print $f "line $_\n" for 1 .. 5000; seek $f, 100, SEEK_SET;
    read $f, my $s, 20; print length $s, "\n"; truncate $f, 50; close $f; print -s "pl/f", "\n"; copy("pl/f", "pl/g"); move("pl/g", "pl/a/g");
    Storable::nstore({ map { $_ => $_ ** 2 } 1 .. 500 }, "pl/st"); print Storable::retrieve("pl/st")->{77}, "\n";
    my @l; unlink $n; find(sub { push @l, $File::Find::name }, "pl"); print join(" ", sort @l), "\n"; utime 1e9, 1e9, "pl/f"; print +(stat "pl/f")[9], "\n";
    if (my $pid = fork) { waitpid $pid, 0 } else { open my $c, ">>", "pl/f"; print $c "child\n"; exit } print -s "pl/f", "\n"; remove_tree("pl/a"); print -e "pl/a" ? "there" : "gone", "\n"'
ruby -rfileutils -rtempfile -rpstore -rcsv -ryaml -e '
    FileUtils.mkdir_p("rb/x/y"); File.open("rb/f", "w+") { |f| f.flock(File::LOCK_EX); f.write("abc" * 30_000); f.seek(-10, IO::SEEK_END); p f.read }
    s = PStore.new("rb/store"); s.transaction { s[:k] = (1..100).to_a }; s.transaction(true) { p s[:k].sum }; s.transaction { s[:k] = 0; s.abort }; s.transaction(true) { p s[:k].size }
    Tempfile.create("t", "rb") { |t| t.write("q" * 5000); t.flush; p File.size(t.path) }; CSV.open("rb/c", "w") { |c| 300.times { |i| c << [i, "v,#{i}"] } }; p CSV.read("rb/c").size
    File.write("rb/y", { "a" => [1, 2] }.to_yaml); p YAML.load_file("rb/y"); FileUtils.cp_r("rb", "rb2"); p Dir.glob("rb2/**/*").sort; FileUtils.mv("rb2/y", "rb2/x/y/z"); p File.exist?("rb2/x/y/z")
    4.times.map { |i| Thread.new { 200.times { |n| File.open("rb/log", "a") { |f| f.puts("#{i} #{n}") } } } }.each(&:join); p File.readlines("rb/log").size; FileUtils.rm_rf("rb2"); p Dir.exist?("rb2")'
cat > t.php << 'END'
<?php
ob_start();
mkdir("php/a", 0755, true); file_put_contents("php/f", str_repeat("php\n", 20000), LOCK_EX); echo filesize("php/f"), "\n";
$f = fopen("php/f", "c+"); flock($f, LOCK_EX); fseek($f, 8); echo fread($f, 3), "\n"; ftruncate($f, 100); fclose($f); clearstatcache(); echo filesize("php/f"), "\n";
$t = tempnam("php", "t"); file_put_contents($t, "x"); rename($t, "php/a/t"); copy("php/a/t", "php/b"); echo implode(" ", scandir("php")), "\n";
session_save_path("php"); ini_set("session.use_cookies", 0); session_cache_limiter(""); session_id("abc"); session_start(); $_SESSION["n"] = 41; session_write_close(); session_start(); echo $_SESSION["n"] + 1, "\n"; session_write_close();
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator("php", FilesystemIterator::SKIP_DOTS)) as $x) { $n[] = $x->getPathname(); } sort($n); echo implode(" ", $n), "\n";
touch("php/b", 1000000000); clearstatcache(); echo date("Y", filemtime("php/b")), "\n"; symlink("b", "php/l"); echo readlink("php/l"), is_link("php/l") ? " link" : "", "\n"; array_map("unlink", glob("php/a/*")); rmdir("php/a"); echo file_exists("php/a") ? "there" : "gone", "\n";
END
php -n t.php
zsh -f -c 'mkdir z z/{a,b}; for i in {1..30}; do print $i > z/a/f$i; done; print z/**/*(.) | wc -w; print z/a/*(Om[1]:t) > /dev/null; mv z/a/f<1-9> z/b; print z/b/*(n:t); print -l z/*(/); cat <(sort -rn z/b/*) | head -n 1; setopt sh_word_split; print ${(f)"$(< z/a/f10)"}; : >! z/a/f11; [[ ! -s z/a/f11 && -s z/a/f12 ]] && print yes'
