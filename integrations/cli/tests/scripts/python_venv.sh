# needs: /usr/bin/python3
# An environment of its own: its python is a link to the system's, its programs are scripts that name it.
cd "$D" || exit 1
export HOME="$T"
/usr/bin/python3 -m venv --without-pip venv; echo "made: $?"
venv/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix, sys.prefix)'
. venv/bin/activate; python -c 'import os, sys; print(sys.executable, os.environ["VIRTUAL_ENV"])'
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/mine"; echo 'def main(): print("imported from", __file__)' > "$site/mine/__init__.py"
printf '#!%s/venv/bin/python\nimport mine\nmine.main()\n' "$D" > venv/bin/mine; chmod +x venv/bin/mine; mine; "$D/venv/bin/mine"
python -m mine 2> /dev/null; python - <<'END'
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True).stdout, end="")
END
deactivate; find venv | wc -l; rm -r venv; ls
