# needs: node
# Files by callbacks, promises, streams and workers; modules of both kinds from the directory.
cd "$D" || exit 1
export HOME="$T"
mkdir -p node_modules/dep lib
echo '{"name":"dep","main":"index.js"}' > node_modules/dep/package.json; echo 'exports.n = 41' > node_modules/dep/index.js
echo 'export const one = 1' > lib/esm.mjs
cat > worker.js <<'END'
const { parentPort, workerData } = require('worker_threads'), fs = require('fs')
fs.writeFileSync(workerData, 'x'.repeat(5000)); parentPort.postMessage(fs.statSync(workerData).size)
END
cat > main.js <<'END'
const fs = require('fs'), fsp = fs.promises, path = require('path'), zlib = require('zlib'), assert = require('assert')
const { Worker } = require('worker_threads'), { execFileSync, fork } = require('child_process')
const { pipeline } = require('stream/promises')
async function main() {
  console.log(require('dep').n + (await import('./lib/esm.mjs')).one, path.relative(__dirname, process.cwd()) === '')
  await fsp.mkdir('a/b/c', { recursive: true })
  await Promise.all([...Array(200).keys()].map(n => fsp.writeFile(`a/b/f${n}`, `${n}`.repeat(n))))
  const sizes = await Promise.all((await fsp.readdir('a/b')).filter(n => n[0] === 'f').map(async n => (await fsp.stat(`a/b/${n}`)).size))
  console.log(sizes.length, sizes.reduce((x, y) => x + y))
  fs.writeFileSync('big', Buffer.alloc(3000000, 'abc'))
  await pipeline(fs.createReadStream('big'), zlib.createGzip(), fs.createWriteStream('big.gz'))
  await pipeline(fs.createReadStream('big.gz'), zlib.createGunzip(), fs.createWriteStream('big2'))
  assert(fs.readFileSync('big').equals(fs.readFileSync('big2')))
  await fsp.cp('a', 'copy', { recursive: true }); fs.copyFileSync('big', 'copied'); fs.renameSync('copied', 'renamed')
  console.log(fs.readdirSync('.', { recursive: true }).length, fs.existsSync('renamed'), fs.realpathSync('a/../a') === path.join(process.cwd(), 'a'))
  const file = await fsp.open('rw', 'w+')
  await file.write('0123456789'); await file.write('AB', 2); await file.sync(); await file.truncate(6)
  console.log((await file.read(Buffer.alloc(10), 0, 10, 0)).buffer.toString('utf8', 0, 6), (await file.stat()).size); await file.close()
  fs.symlinkSync('rw', 'link'); fs.linkSync('rw', 'hard'); console.log(fs.readlinkSync('link'), fs.lstatSync('link').isSymbolicLink(), fs.statSync('hard').nlink)
  fs.utimesSync('rw', 1, 2); fs.chmodSync('rw', 0o600); console.log(fs.statSync('rw').mtimeMs, (fs.statSync('rw').mode & 0o777).toString(8))
  const done = await Promise.all([1, 2, 3].map(n => new Promise((yes, no) => new Worker('./worker.js', { workerData: `w${n}` }).on('message', yes).on('error', no))))
  console.log(done, execFileSync('cat', ['rw']).toString(), execFileSync(process.execPath, ['-p', 'process.cwd()'], { cwd: 'a' }).toString().trim().endsWith('/a'))
  const out = fs.openSync('child', 'w'); execFileSync('echo', ['to a file'], { stdio: ['ignore', out, 'inherit'] }); fs.closeSync(out); console.log(fs.readFileSync('child', 'utf8').trim())
  for (const [name, call] of [['ENOENT', () => fs.readFileSync('nope')], ['EEXIST', () => fs.mkdirSync('a')], ['ENOTEMPTY', () => fs.rmdirSync('a')], ['ENOTDIR', () => fs.readdirSync('rw')]])
    assert.throws(call, { code: name })
  await fsp.rm('a', { recursive: true }); await fsp.rm('copy', { recursive: true }); console.log(fs.existsSync('a'))
}
main().catch(error => { console.log(error); process.exit(1) })
END
node main.js
