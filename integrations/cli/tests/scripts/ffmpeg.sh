# needs: ffmpeg ffprobe
# Video and sound made, converted and cut: files that are written at the end and then again at the front.
cd "$D" || exit 1
ff() { ffmpeg -nostdin -loglevel error -threads 1 -bitexact "$@"; }
ff -f lavfi -i testsrc=size=160x120:rate=10:duration=3 -f lavfi -i sine=frequency=440:duration=3 -c:v mpeg4 -c:a aac -flags bitexact -movflags +faststart a.mp4; echo $?
ffprobe -loglevel error -show_entries stream=codec_name,nb_frames -of csv a.mp4
ff -i a.mp4 -c copy b.mkv; ff -i b.mkv -ss 1 -t 1 -c:v mpeg4 -an c.avi; ff -i a.mp4 -vn c.wav; ff -i a.mp4 'p%02d.png'
for f in b.mkv c.avi; do ffprobe -loglevel error -count_frames -select_streams v -show_entries stream=nb_read_frames -of csv $f; done
ls; sha256sum a.mp4 c.wav p05.png; printf "file 'a.mp4'\nfile 'a.mp4'\n" > l; ff -f concat -i l -c copy d.mp4; ffprobe -loglevel error -show_entries format=duration -of csv d.mp4; ff -i a.mp4 -f segment -segment_time 1 -c copy s%d.ts; ls s*; ff -i a.mp4 -f hls -hls_time 1 h.m3u8; grep -c ts h.m3u8
