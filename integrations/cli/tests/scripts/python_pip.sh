# needs: /usr/bin/python3 /usr/share/python-wheels/pip-*.whl
# pip in an environment of its own: hundreds of modules, compiled; a package of ours, installed and taken out again.
cd "$D" || exit 1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_NO_CACHE_DIR=1 HOME="$T"
/usr/bin/python3 -m venv venv; echo "made: $?"
. venv/bin/activate
mkdir -p src/mine src/mine-1.0.dist-info; echo 'def main(): print("installed")' > src/mine/__init__.py
printf 'Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n' > src/mine-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > src/mine-1.0.dist-info/WHEEL
printf '[console_scripts]\nmine = mine:main\n' > src/mine-1.0.dist-info/entry_points.txt
printf 'mine/__init__.py,,\nmine-1.0.dist-info/METADATA,,\nmine-1.0.dist-info/RECORD,,\n' > src/mine-1.0.dist-info/RECORD
(cd src && python -m zipfile -c ../mine-1.0-py3-none-any.whl mine mine-1.0.dist-info)
pip install -q ./mine-1.0-py3-none-any.whl; echo "pip: $?"; mine; pip list 2> /dev/null | grep mine
pip uninstall -q -y mine; python -c 'import mine' 2> /dev/null || echo gone
deactivate; find venv -name '*.pyc' | wc -l; rm -r venv
