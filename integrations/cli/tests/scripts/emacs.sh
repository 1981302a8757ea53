# needs: emacs
# Files edited in batch mode: backups, locks, auto-saves, directories, compression, coding systems.
cd "$D" || exit 1; export HOME="$T"; seq 3000 > f; printf 'caf\351\n' > latin; ln -s f link
emacs -Q --batch --eval '(progn
 (setq backup-enable-predicate (lambda (name) t) make-backup-files t version-control t delete-old-versions t create-lockfiles t)
 (find-file "f") (goto-char (point-max)) (insert "more\n") (message "%s" (file-locked-p "f")) (save-buffer) (message "%s" (directory-files "." nil "^f"))
 (insert "yet\n") (do-auto-save) (message "%s" (file-exists-p (make-auto-save-file-name))) (save-buffer)
 (find-file "latin") (message "%s" (buffer-string)) (set-buffer-file-coding-system (quote utf-8)) (insert "é") (save-buffer)
 (find-file "link") (goto-char 1) (insert "by link\n") (let ((backup-by-copying t)) (save-buffer)))' 2>&1
emacs -Q --batch --eval '(progn (auto-compression-mode 1) (find-file "z.gz") (dotimes (i 500) (insert (format "%d\n" i))) (save-buffer) (kill-buffer) (find-file "z.gz") (message "%d" (buffer-size))
 (make-directory "x/y" t) (copy-directory "x" "x2") (rename-file "x2" "x3") (message "%S" (directory-files-recursively "." "" t)) (delete-directory "x" t) (set-file-modes "f" 384) (set-file-times "f" (quote (15258 51712))) (message "%o" (file-modes "f")))' 2>&1
gzip -dc z.gz | tail -n 1; tail -n 2 f; head -n 1 f; od -c latin | head -n 2; ls -A; stat -c %a,%Y f; readlink link
