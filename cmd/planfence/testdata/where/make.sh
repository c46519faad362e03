printf 'int main(void) { return 0; }\n' > app.c
printf 'app: app.o\n\t$(CC) -o $@ $^\napp.o: app.c\n\t$(CC) -c -o $@ $<\nclean:\n\trm -f app app.o\n' > Makefile
## act
make -s CC=gcc
./app
make -s clean
make -s -j2 CC=gcc
