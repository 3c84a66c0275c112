# advisory_migrate.rb DIR
#
# Runs the migrations in DIR as "rails db:migrate" does, in the database of
# DATABASE_URL, and prints what becomes of it.

require 'logger'
require 'active_record'

ActiveRecord::Base.establish_connection(ENV['DATABASE_URL'])
ActiveRecord::Migration.verbose = false
ActiveRecord::Migrator.migrations_paths = [ARGV[0]]
connection = ActiveRecord::Base.connection
has_context = connection.respond_to?(:migration_context) ? connection : connection.pool
begin
  has_context.migration_context.migrate
  puts 'migrated'
rescue ActiveRecord::ConcurrentMigrationError => e
  puts "refused: #{e.class}"
end
