# needs: git
# A repository, its packs, clones over both transports, and a checkout of 2,000 files and away from them.
cd "$D" || exit 1
export HOME="$T" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=c
export GIT_COMMITTER_EMAIL=c@d.e GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-02T00:00:00Z'
git init -q -b main repo && cd repo || exit 1
for i in 1 2 3; do seq "$i" 3000 > "f$i"; git add . && git commit -qm "commit $i" || exit 1; done
git log --format='%H %s'
git checkout -q -b side HEAD~1; echo side > s; git add s; git commit -qm side; git checkout -q main
git merge -q -m merged side; git log --oneline | wc -l
git checkout -q -b topic HEAD~1; echo topic > t; git add t; git commit -qm topic; git rebase -q main 2>&1
git rev-parse HEAD^{tree}; git checkout -q main; git merge -q topic; git branch -q -d topic
sed -i '5d' f1; git stash -q; git status --short; git stash pop -q; git diff --stat; git checkout -q f1
git tag -m tagged v1; git repack -qad; git gc -q --prune=now; git count-objects -v | grep -E '^(count|packs)'
git fsck --full --strict --no-progress && echo sound
git grep -c 2999 | sort; git blame -s f2 | sed -n 7p | cut -d' ' -f2-; git archive HEAD | tar tf - | sort
git worktree add -q ../tree side 2>&1; ls ../tree; git worktree remove ../tree
cd ..
git clone -q repo local; git clone -q "file://$D/repo" packed; git clone -q --bare repo bare.git
for clone in local packed; do diff -r --exclude=.git repo $clone && git -C $clone fsck --no-progress && echo $clone; done
cd packed || exit 1
echo more >> f3; git commit -qam more; git push -q ../bare.git main 2>&1; git -C ../bare.git rev-parse main
git checkout -q -b big
for d in $(seq 40); do
    mkdir "d$d"; for f in $(seq 50); do echo "$d $f" > "d$d/f$f"; done
done
git add . && git commit -qm big; git rev-parse HEAD^{tree}
git checkout -q main; ls; git checkout -q big; git status --short; git ls-files | wc -l; cat d*/f* | sha256sum
git gc -q; git fsck --no-progress && echo sound; git clone -q . ../again && find ../again/d* -type f | wc -l
git clean -qfdx; git reset -q --hard HEAD~1; ls
